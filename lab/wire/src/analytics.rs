//! The two suites of analytical queries: CH-benCHmark over TPC-C's tables, and TPC-H.

use std::path::Path;

use clap::Args;
use thermocline_workloads::tpcc::ch::{self, Dress};
use thermocline_workloads::tpch::{Order, Population};

use crate::schema::{Fixed, Rows, Target, date};
use crate::suite::{self, Suite};
use crate::tpcc::{SEED, population};
use crate::{Result, schema};

#[derive(Args)]
pub(crate) struct Ch {
    #[command(flatten)]
    run: suite::Run,
    #[arg(long, default_value_t = 4)]
    warehouses: i32,
}

#[derive(Args)]
pub(crate) struct TpcH {
    #[command(flatten)]
    run: suite::Run,
    /// The scale factor, in steps of a thousandth.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
}

const CH_TABLES: [(&str, &str); 3] = [
    ("region", "r_regionkey integer primary key, r_name char(55) not null, r_comment varchar(152) not null"),
    (
        "nation",
        "n_nationkey integer primary key, n_name char(25) not null, n_regionkey integer not null, \
         n_comment varchar(152) not null",
    ),
    (
        "supplier",
        "su_suppkey integer primary key, su_name char(25) not null, su_address varchar(40) not null, \
         su_nationkey integer not null, su_phone char(15) not null, su_acctbal numeric(12,2) not null, \
         su_comment varchar(101) not null",
    ),
];

const TPCH_TABLES: [(&str, &str); 8] = [
    ("region", "r_regionkey integer primary key, r_name char(25) not null, r_comment varchar(152) not null"),
    (
        "nation",
        "n_nationkey integer primary key, n_name char(25) not null, n_regionkey integer not null, \
         n_comment varchar(152) not null",
    ),
    (
        "part",
        "p_partkey integer primary key, p_name varchar(55) not null, p_mfgr char(25) not null, p_brand char(10) not null, \
         p_type varchar(25) not null, p_size integer not null, p_container char(10) not null, \
         p_retailprice numeric(15,2) not null, p_comment varchar(23) not null",
    ),
    (
        "supplier",
        "s_suppkey integer primary key, s_name char(25) not null, s_address varchar(40) not null, \
         s_nationkey integer not null, s_phone char(15) not null, s_acctbal numeric(15,2) not null, \
         s_comment varchar(101) not null",
    ),
    (
        "partsupp",
        "ps_partkey integer not null, ps_suppkey integer not null, ps_availqty integer not null, \
         ps_supplycost numeric(15,2) not null, ps_comment varchar(199) not null, primary key (ps_partkey, ps_suppkey)",
    ),
    (
        "customer",
        "c_custkey integer primary key, c_name varchar(25) not null, c_address varchar(40) not null, \
         c_nationkey integer not null, c_phone char(15) not null, c_acctbal numeric(15,2) not null, \
         c_mktsegment char(10) not null, c_comment varchar(117) not null",
    ),
    (
        "orders",
        "o_orderkey integer primary key, o_custkey integer not null, o_orderstatus char(1) not null, \
         o_totalprice numeric(15,2) not null, o_orderdate date not null, o_orderpriority char(15) not null, \
         o_clerk char(15) not null, o_shippriority integer not null, o_comment varchar(79) not null",
    ),
    (
        "lineitem",
        "l_orderkey integer not null, l_partkey integer not null, l_suppkey integer not null, \
         l_linenumber integer not null, l_quantity numeric(15,2) not null, l_extendedprice numeric(15,2) not null, \
         l_discount numeric(15,2) not null, l_tax numeric(15,2) not null, l_returnflag char(1) not null, \
         l_linestatus char(1) not null, l_shipdate date not null, l_commitdate date not null, l_receiptdate date not null, \
         l_shipinstruct char(25) not null, l_shipmode char(10) not null, l_comment varchar(44) not null, \
         primary key (l_orderkey, l_linenumber)",
    ),
];

/// Keys that refer to other tables, where no primary key begins with them.
const TPCH_INDEXES: [&str; 3] = [
    "create index lineitem_by_part on lineitem (l_partkey, l_suppkey)",
    "create index orders_by_customer on orders (o_custkey)",
    "create index partsupp_by_supplier on partsupp (ps_suppkey)",
];

fn ch_suite() -> Suite {
    Suite {
        name: "CH-benCHmark",
        tables: schema::TABLES.into_iter().chain(CH_TABLES).collect(),
        indexes: schema::INDEXES.to_vec(),
        queries: include_str!("../queries/ch.sql"),
    }
}

fn tpch_suite() -> Suite {
    Suite {
        name: "TPC-H",
        tables: TPCH_TABLES.to_vec(),
        indexes: TPCH_INDEXES.to_vec(),
        queries: include_str!("../queries/tpch.sql"),
    }
}

pub(crate) async fn ch(run: &Ch) -> Result<()> {
    let (warehouses, servers) = (run.warehouses, &run.run.servers.servers);
    println!("CH-benCHmark, {warehouses} warehouses");
    suite::run(&run.run, &ch_suite(), async |folder: &Path| ch_rows(folder, warehouses).await).await?;
    for server in servers {
        crate::tpcc::report_broken(server, &server.connect().await?).await?;
    }
    Ok(())
}

async fn ch_rows(folder: &Path, warehouses: i32) -> Result<u64> {
    let (target, population) = (Target::Folder(folder), population(warehouses));
    let dress = Dress::new(SEED, population.scale.customers);
    let mut count = schema::load(target, &population, Some(&dress)).await?;
    let mut rows = Rows::of(target, "region").await?;
    for (name, key) in ch::REGIONS.iter().zip(0..) {
        rows.add(format_args!("{key}\t{name}\tregion {name}")).await?;
    }
    count += rows.end().await?;
    let mut rows = Rows::of(target, "nation").await?;
    for ((name, region), key) in ch::NATIONS.iter().zip(ch::KEYS) {
        rows.add(format_args!("{key}\t{name}\t{region}\tnation {name}")).await?;
    }
    count += rows.end().await?;
    let mut rows = Rows::of(target, "supplier").await?;
    for row in ch::suppliers(SEED) {
        let (key, nation, balance) = (row.su_suppkey, row.su_nationkey, Fixed(row.su_acctbal_cents, 2));
        let (address, comment) = (row.su_address.as_str(), row.su_comment.as_str());
        rows.add(format_args!(
            "{key}\tSupplier#{key:09}\t{address}\t{nation}\t{nation}-{key:09}\t{balance}\t{comment}"
        ))
        .await?;
    }
    Ok(count + rows.end().await?)
}

pub(crate) async fn tpch(run: &TpcH) -> Result<()> {
    let scale = run.scale;
    println!("TPC-H, scale {scale}");
    suite::run(&run.run, &tpch_suite(), async |folder: &Path| tpch_rows(folder, scale).await).await
}

/// A day as text.
struct Day(i32);

impl std::fmt::Display for Day {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (year, month, day) = date(i64::from(self.0));
        write!(f, "{year:04}-{month:02}-{day:02}")
    }
}

async fn tpch_rows(folder: &Path, scale: f64) -> Result<u64> {
    let population = Population::new(SEED, scale);
    let target = Target::Folder(folder);
    let mut rows = Rows::of(target, "region").await?;
    for row in population.regions() {
        rows.add(format_args!("{}\t{}\t{}", row.regionkey, row.name, row.comment)).await?;
    }
    let mut count = rows.end().await?;
    let mut rows = Rows::of(target, "nation").await?;
    for row in population.nations() {
        rows.add(format_args!("{}\t{}\t{}\t{}", row.nationkey, row.name, row.regionkey, row.comment)).await?;
    }
    count += rows.end().await?;
    let mut rows = Rows::of(target, "part").await?;
    for row in population.parts() {
        let (mfgr, brand, price) = (row.mfgr, row.brand, Fixed(row.retailprice, 2));
        let (name, kind, container) = (row.name.join(" "), row.kind.join(" "), row.container.join(" "));
        rows.add(format_args!(
            "{}\t{name}\tManufacturer#{mfgr}\tBrand#{brand}\t{kind}\t{}\t{container}\t{price}\t{}",
            row.partkey, row.size, row.comment
        ))
        .await?;
    }
    count += rows.end().await?;
    let mut rows = Rows::of(target, "supplier").await?;
    for row in population.suppliers() {
        let (key, balance) = (row.suppkey, Fixed(row.acctbal, 2));
        rows.add(format_args!(
            "{key}\tSupplier#{key:09}\t{}\t{}\t{}\t{balance}\t{}",
            row.address, row.nationkey, row.phone, row.comment
        ))
        .await?;
    }
    count += rows.end().await?;
    let mut rows = Rows::of(target, "partsupp").await?;
    for row in population.partsupps() {
        let cost = Fixed(row.supplycost, 2);
        rows.add(format_args!("{}\t{}\t{}\t{cost}\t{}", row.partkey, row.suppkey, row.availqty, row.comment))
            .await?;
    }
    count += rows.end().await?;
    let mut rows = Rows::of(target, "customer").await?;
    for row in population.customers() {
        let (key, balance) = (row.custkey, Fixed(row.acctbal, 2));
        rows.add(format_args!(
            "{key}\tCustomer#{key:09}\t{}\t{}\t{}\t{balance}\t{}\t{}",
            row.address, row.nationkey, row.phone, row.mktsegment, row.comment
        ))
        .await?;
    }
    count += rows.end().await?;
    let mut orders = Rows::of(target, "orders").await?;
    let mut lines = Rows::of(target, "lineitem").await?;
    for order in population.orders() {
        add_order(&mut orders, &mut lines, &order).await?;
    }
    Ok(count + orders.end().await? + lines.end().await?)
}

async fn add_order(orders: &mut Rows, lines: &mut Rows, order: &Order<'_>) -> Result<()> {
    let (key, total, day) = (order.orderkey, Fixed(order.totalprice, 2), Day(order.orderdate));
    orders
        .add(format_args!(
            "{key}\t{}\t{}\t{total}\t{day}\t{}\tClerk#{:09}\t0\t{}",
            order.custkey, order.status, order.priority, order.clerk, order.comment
        ))
        .await?;
    for (line, number) in order.lines.iter().zip(1..) {
        let (price, discount, tax) =
            (Fixed(line.extendedprice, 2), Fixed(line.discount, 2), Fixed(line.tax, 2));
        let [ship, commit, receipt] = [line.shipdate, line.commitdate, line.receiptdate].map(Day);
        lines
            .add(format_args!(
                "{key}\t{}\t{}\t{number}\t{}\t{price}\t{discount}\t{tax}\t{}\t{}\t{ship}\t{commit}\t{receipt}\t{}\t{}\t{}",
                line.partkey,
                line.suppkey,
                line.quantity,
                line.returnflag,
                line.linestatus,
                line.shipinstruct,
                line.shipmode,
                line.comment
            ))
            .await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_suites_have_22_queries_in_order() {
        for suite in [ch_suite(), tpch_suite()] {
            let numbers: Vec<usize> = suite.queries().iter().map(|(number, _)| *number).collect();
            assert_eq!(numbers, (1..=22).collect::<Vec<_>>(), "{}", suite.name);
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn files_have_a_line_a_row_and_a_field_a_column() {
        let folder = std::env::temp_dir().join(format!("thermocline-wire-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let rows = tpch_rows(&folder, 0.001).await.expect("rows");
        let mut lines = 0;
        for (table, columns) in TPCH_TABLES {
            let text = std::fs::read_to_string(folder.join(table)).expect("a file");
            let fields = columns.split(", primary key (").next().map_or(0, |columns| {
                // A comma within parentheses has no blank behind it.
                columns.split(", ").count()
            });
            assert!(text.lines().all(|line| line.split('\t').count() == fields), "{table}");
            lines += text.lines().count();
        }
        assert_eq!(u64::try_from(lines).expect("few"), rows);
        std::fs::remove_dir_all(&folder).expect("the folder goes");
    }
}
