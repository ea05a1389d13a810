//! TPC-C as SQL: its tables, the population by COPY or into files, and the conditions of consistency.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use bytes::Bytes;
use futures_util::SinkExt;
use thermocline_workloads::tpcc::DISTRICTS;
use thermocline_workloads::tpcc::ch::Dress;
use thermocline_workloads::tpcc::generate::{Address, Order, Population};
use tokio_postgres::{Client, CopyInSink};

use crate::Result;

/// The tables, each with its definition.
pub(crate) const TABLES: [(&str, &str); 9] = [
    (
        "warehouse",
        "w_id integer primary key, w_name varchar(10) not null, w_street_1 varchar(20) not null, \
         w_street_2 varchar(20) not null, w_city varchar(20) not null, w_state char(2) not null, w_zip char(9) not null, \
         w_tax numeric(4,4) not null, w_ytd numeric(18,2) not null",
    ),
    (
        "district",
        "d_id smallint not null, d_w_id integer not null, d_name varchar(10) not null, d_street_1 varchar(20) not null, \
         d_street_2 varchar(20) not null, d_city varchar(20) not null, d_state char(2) not null, d_zip char(9) not null, \
         d_tax numeric(4,4) not null, d_ytd numeric(18,2) not null, d_next_o_id integer not null, \
         primary key (d_w_id, d_id)",
    ),
    (
        "customer",
        "c_id integer not null, c_d_id smallint not null, c_w_id integer not null, c_first varchar(16) not null, \
         c_middle char(2) not null, c_last varchar(16) not null, c_street_1 varchar(20) not null, \
         c_street_2 varchar(20) not null, c_city varchar(20) not null, c_state char(2) not null, c_zip char(9) not null, \
         c_phone char(16) not null, c_since timestamp not null, c_credit char(2) not null, \
         c_credit_lim numeric(12,2) not null, c_discount numeric(4,4) not null, c_balance numeric(18,2) not null, \
         c_ytd_payment numeric(18,2) not null, c_payment_cnt integer not null, c_delivery_cnt integer not null, \
         c_data varchar(500) not null, primary key (c_w_id, c_d_id, c_id)",
    ),
    (
        "history",
        "h_c_id integer not null, h_c_d_id smallint not null, h_c_w_id integer not null, h_d_id smallint not null, \
         h_w_id integer not null, h_date timestamp not null, h_amount numeric(6,2) not null, h_data varchar(24) not null",
    ),
    (
        "new_order",
        "no_o_id integer not null, no_d_id smallint not null, no_w_id integer not null, \
         primary key (no_w_id, no_d_id, no_o_id)",
    ),
    (
        "orders",
        "o_id integer not null, o_d_id smallint not null, o_w_id integer not null, o_c_id integer not null, \
         o_entry_d timestamp not null, o_carrier_id smallint, o_ol_cnt smallint not null, o_all_local smallint not null, \
         primary key (o_w_id, o_d_id, o_id)",
    ),
    (
        "order_line",
        "ol_o_id integer not null, ol_d_id smallint not null, ol_w_id integer not null, ol_number smallint not null, \
         ol_i_id integer not null, ol_supply_w_id integer not null, ol_delivery_d timestamp, ol_quantity smallint not null, \
         ol_amount numeric(6,2) not null, ol_dist_info char(24) not null, \
         primary key (ol_w_id, ol_d_id, ol_o_id, ol_number)",
    ),
    (
        "item",
        "i_id integer primary key, i_im_id integer not null, i_name varchar(24) not null, i_price numeric(5,2) not null, \
         i_data varchar(50) not null",
    ),
    (
        "stock",
        "s_i_id integer not null, s_w_id integer not null, s_quantity smallint not null, s_dist_01 char(24) not null, \
         s_dist_02 char(24) not null, s_dist_03 char(24) not null, s_dist_04 char(24) not null, s_dist_05 char(24) not null, \
         s_dist_06 char(24) not null, s_dist_07 char(24) not null, s_dist_08 char(24) not null, s_dist_09 char(24) not null, \
         s_dist_10 char(24) not null, s_ytd bigint not null, s_order_cnt integer not null, s_remote_cnt integer not null, \
         s_data varchar(50) not null, primary key (s_w_id, s_i_id)",
    ),
];

pub(crate) const INDEXES: [&str; 2] = [
    "create index customer_by_name on customer (c_w_id, c_d_id, c_last, c_first)",
    "create unique index orders_by_customer on orders (o_w_id, o_d_id, o_c_id, o_id)",
];

/// Makes the tables anew, empty, with their indexes.
pub(crate) async fn define(client: &Client) -> Result<()> {
    for (table, columns) in TABLES {
        client.batch_execute(&format!("drop table if exists {table}")).await?;
        client.batch_execute(&format!("create table {table} ({columns})")).await?;
    }
    for index in INDEXES {
        client.batch_execute(index).await?;
    }
    Ok(())
}

/// The place of a population: the tables of a server, or a folder with a file a table, in the text form of COPY.
#[derive(Clone, Copy)]
pub(crate) enum Target<'a> {
    Server(&'a Client),
    Folder(&'a Path),
}

/// Rows on their way into a table or behind a file.
pub(crate) struct Rows {
    sink: Sink,
    text: String,
    rows: u64,
}

enum Sink {
    Copy(std::pin::Pin<Box<CopyInSink<Bytes>>>),
    File(std::fs::File),
}

impl Rows {
    pub(crate) async fn of(target: Target<'_>, table: &str) -> Result<Self> {
        let sink = match target {
            Target::Server(client) => {
                Sink::Copy(Box::pin(client.copy_in(&format!("copy {table} from stdin")).await?))
            }
            Target::Folder(folder) => {
                Sink::File(std::fs::File::options().create(true).append(true).open(folder.join(table))?)
            }
        };
        Ok(Self { sink, text: String::new(), rows: 0 })
    }

    /// Adds a row of fields that need no escapes.
    pub(crate) async fn add(&mut self, row: std::fmt::Arguments<'_>) -> Result<()> {
        writeln!(self.text, "{row}").expect("a string takes everything");
        self.rows += 1;
        if self.text.len() > 256 << 10 { self.send().await } else { Ok(()) }
    }

    async fn send(&mut self) -> Result<()> {
        match &mut self.sink {
            Sink::Copy(sink) => sink.send(Bytes::from(std::mem::take(&mut self.text))).await?,
            Sink::File(file) => {
                file.write_all(self.text.as_bytes())?;
                self.text.clear();
            }
        }
        Ok(())
    }

    pub(crate) async fn end(mut self) -> Result<u64> {
        self.send().await?;
        if let Sink::Copy(sink) = &mut self.sink {
            sink.as_mut().finish().await?;
        }
        Ok(self.rows)
    }
}

/// A fixed-point number as text.
pub(crate) struct Fixed(pub(crate) i64, pub(crate) u32);

impl std::fmt::Display for Fixed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let unit = 10_i64.pow(self.1);
        let sign = if self.0 < 0 { "-" } else { "" };
        write!(
            f,
            "{sign}{}.{:0digits$}",
            (self.0 / unit).abs(),
            (self.0 % unit).abs(),
            digits = self.1 as usize
        )
    }
}

/// Five columns.
struct Place<'a>(&'a Address);

impl std::fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Address { street_1, street_2, city, state, zip } = self.0;
        let [a, b, c] = [street_1, street_2, city].map(|text| text.as_str());
        write!(f, "{a}\t{b}\t{c}\t{}\t{}", state.as_str(), zip.as_str())
    }
}

/// A moment as text: seconds of a day that all rows of the population share.
fn time(at_us: i64) -> String {
    let seconds = at_us.div_euclid(1_000_000);
    let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = date(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", of_day / 3600, of_day / 60 % 60, of_day % 60)
}

/// Year, month and day of a number of days since 1970, in the Gregorian calendar.
pub(crate) fn date(days: i64) -> (i64, i64, i64) {
    // Years begin in March, so that the leap day is the last.
    let since = days + 719_468;
    let (era, of_era) = (since.div_euclid(146_097), since.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

/// Copies the population, in its dress if there is one; returns the number of rows.
pub(crate) async fn load(target: Target<'_>, population: &Population, dress: Option<&Dress>) -> Result<u64> {
    let mut count = 0;
    let mut rows = Rows::of(target, "item").await?;
    for mut item in population.items() {
        dress.iter().for_each(|dress| dress.item(&mut item));
        let (id, image, name) = (item.i_id, item.i_im_id, item.i_name);
        let price = Fixed(item.i_price_cents, 2);
        rows.add(format_args!("{id}\t{image}\t{}\t{price}\t{}", name.as_str(), item.i_data.as_str())).await?;
    }
    count += rows.end().await?;
    for w_id in 1..=population.scale.warehouses {
        count += load_warehouse(target, population, dress, w_id).await?;
    }
    Ok(count)
}

async fn load_warehouse(
    target: Target<'_>,
    population: &Population,
    dress: Option<&Dress>,
    w_id: i32,
) -> Result<u64> {
    let mut count = 0;
    let mut rows = Rows::of(target, "warehouse").await?;
    let warehouse = population.warehouse(w_id);
    let (tax, ytd) = (Fixed(warehouse.w_tax_e4, 4), Fixed(warehouse.w_ytd_cents, 2));
    let (name, place) = (warehouse.w_name, Place(&warehouse.w_address));
    rows.add(format_args!("{w_id}\t{}\t{place}\t{tax}\t{ytd}", name.as_str())).await?;
    count += rows.end().await?;

    let mut rows = Rows::of(target, "stock").await?;
    for mut stock in population.stock(w_id) {
        dress.iter().for_each(|dress| dress.stock(&mut stock));
        let dist: Vec<&str> = stock.s_dist.iter().map(|text| text.as_str()).collect();
        rows.add(format_args!(
            "{}\t{w_id}\t{}\t{}\t{}\t{}\t{}\t{}",
            stock.s_i_id,
            stock.s_quantity,
            dist.join("\t"),
            stock.s_ytd,
            stock.s_order_cnt,
            stock.s_remote_cnt,
            stock.s_data.as_str()
        ))
        .await?;
    }
    count += rows.end().await?;

    let mut rows = Rows::of(target, "district").await?;
    for d_id in 1..=DISTRICTS {
        let district = population.district(w_id, d_id);
        let (tax, ytd) = (Fixed(district.d_tax_e4, 4), Fixed(district.d_ytd_cents, 2));
        let (name, place) = (district.d_name, Place(&district.d_address));
        let next = district.d_next_o_id;
        rows.add(format_args!("{d_id}\t{w_id}\t{}\t{place}\t{tax}\t{ytd}\t{next}", name.as_str())).await?;
    }
    count += rows.end().await?;
    for d_id in 1..=DISTRICTS {
        let mut orders: Vec<Order> = population.orders(w_id, d_id).collect();
        // By customer: the amount of its orders that is delivered, which its balance counts.
        let mut delivered = vec![0; orders.len() + 1];
        if let Some(dress) = dress {
            for order in &mut orders {
                delivered[usize::try_from(order.o_c_id)?] += dress.order(order);
            }
        }
        count += load_customers(target, population, dress, &delivered, (w_id, d_id)).await?;
        count += load_orders(target, &orders, w_id, d_id).await?;
    }
    Ok(count)
}

async fn load_customers(
    target: Target<'_>,
    population: &Population,
    dress: Option<&Dress>,
    delivered: &[i64],
    (w_id, d_id): (i32, i16),
) -> Result<u64> {
    let mut rows = Rows::of(target, "customer").await?;
    for mut customer in population.customers(w_id, d_id) {
        if let Some(dress) = dress {
            let delivered = delivered[usize::try_from(customer.c_id)?];
            dress.customer(&mut customer, delivered);
        }
        let texts = [customer.c_first.as_str(), customer.c_middle.as_str(), customer.c_last.as_str()];
        rows.add(format_args!(
            "{}\t{d_id}\t{w_id}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}",
            customer.c_id,
            texts.join("\t"),
            Place(&customer.c_address),
            customer.c_phone.as_str(),
            time(customer.c_since_us),
            customer.c_credit.as_str(),
            Fixed(customer.c_credit_lim_cents, 2),
            Fixed(customer.c_discount_e4, 4),
            Fixed(customer.c_balance_cents, 2),
            Fixed(customer.c_ytd_payment_cents, 2),
            customer.c_payment_cnt,
            customer.c_delivery_cnt,
            customer.c_data.as_str()
        ))
        .await?;
    }
    let customers = rows.end().await?;
    let mut rows = Rows::of(target, "history").await?;
    for history in population.history(w_id, d_id) {
        let (amount, at) = (Fixed(history.h_amount_cents, 2), time(history.h_date_us));
        let (id, data) = (history.h_c_id, history.h_data);
        rows.add(format_args!("{id}\t{d_id}\t{w_id}\t{d_id}\t{w_id}\t{at}\t{amount}\t{}", data.as_str()))
            .await?;
    }
    Ok(customers + rows.end().await?)
}

async fn load_orders(target: Target<'_>, orders: &[Order], w_id: i32, d_id: i16) -> Result<u64> {
    const NULL: &str = "\\N";
    let mut rows = Rows::of(target, "orders").await?;
    for order in orders {
        let carrier = order.o_carrier_id.map_or(NULL.to_owned(), |carrier| carrier.to_string());
        let (at, lines) = (time(order.o_entry_d_us), order.o_ol_cnt);
        let (id, customer, local) = (order.o_id, order.o_c_id, i16::from(order.o_all_local));
        rows.add(format_args!("{id}\t{d_id}\t{w_id}\t{customer}\t{at}\t{carrier}\t{lines}\t{local}")).await?;
    }
    let mut count = rows.end().await?;
    let mut rows = Rows::of(target, "new_order").await?;
    for order in orders.iter().filter(|order| order.is_new()) {
        rows.add(format_args!("{}\t{d_id}\t{w_id}", order.o_id)).await?;
    }
    count += rows.end().await?;
    let mut rows = Rows::of(target, "order_line").await?;
    for order in orders {
        for line in order.lines() {
            let delivered = line.ol_delivery_d_us.map_or(NULL.to_owned(), time);
            let (number, item, supplier) = (line.ol_number, line.ol_i_id, line.ol_supply_w_id);
            rows.add(format_args!(
                "{}\t{d_id}\t{w_id}\t{number}\t{item}\t{supplier}\t{delivered}\t{}\t{}\t{}",
                order.o_id,
                line.ol_quantity,
                Fixed(line.ol_amount_cents, 2),
                line.ol_dist_info.as_str()
            ))
            .await?;
        }
    }
    Ok(count + rows.end().await?)
}

/// The conditions of clause 3.3.2 for the specification's population, each as a count of what breaks it.
const CONDITIONS: [&str; 12] = [
    "select count(*) from warehouse where w_ytd <> (select sum(d_ytd) from district where d_w_id = w_id)",
    "select count(*) from district d
     where d_next_o_id - 1 <> (select max(o_id) from orders where o_w_id = d_w_id and o_d_id = d.d_id)
        or d_next_o_id - 1 < (select max(no_o_id) from new_order where no_w_id = d_w_id and no_d_id = d.d_id)",
    "select count(*) from (
         select no_w_id, no_d_id from new_order group by no_w_id, no_d_id
         having max(no_o_id) - min(no_o_id) + 1 <> count(*)) as broken",
    "select count(*) from (
         select o_w_id as w, o_d_id as d, sum(o_ol_cnt) as said from orders group by o_w_id, o_d_id) as o
     join (select ol_w_id as w, ol_d_id as d, count(*) as there from order_line group by ol_w_id, ol_d_id) as l
       on o.w = l.w and o.d = l.d
     where said <> there",
    "select count(*) from orders left join new_order on no_w_id = o_w_id and no_d_id = o_d_id and no_o_id = o_id
     where (o_carrier_id is null) <> (no_o_id is not null)",
    "select count(*) from orders join (
         select ol_w_id as w, ol_d_id as d, ol_o_id as o, count(*) as there from order_line
         group by ol_w_id, ol_d_id, ol_o_id) as l
       on o_w_id = w and o_d_id = d and o_id = o
     where o_ol_cnt <> there",
    "select count(*) from order_line join orders on o_w_id = ol_w_id and o_d_id = ol_d_id and o_id = ol_o_id
     where (ol_delivery_d is null) <> (o_carrier_id is null)",
    "select count(*) from warehouse where w_ytd <> (select sum(h_amount) from history where h_w_id = w_id)",
    "select count(*) from district d
     where d_ytd <> (select sum(h_amount) from history where h_w_id = d_w_id and h_d_id = d.d_id)",
    "select count(*) from customer
     left join (select o_w_id as w, o_d_id as d, o_c_id as c, sum(ol_amount) as delivered
         from orders join order_line on ol_w_id = o_w_id and ol_d_id = o_d_id and ol_o_id = o_id
         where ol_delivery_d is not null group by o_w_id, o_d_id, o_c_id) as l on w = c_w_id and d = c_d_id and c = c_id
     left join (select h_c_w_id as hw, h_c_d_id as hd, h_c_id as hc, sum(h_amount) as paid
         from history group by h_c_w_id, h_c_d_id, h_c_id) as h on hw = c_w_id and hd = c_d_id and hc = c_id
     where c_balance <> coalesce(delivered, 0) - coalesce(paid, 0)",
    "select count(*) from district d
     where (select count(*) from orders where o_w_id = d_w_id and o_d_id = d.d_id)
         - (select count(*) from new_order where no_w_id = d_w_id and no_d_id = d.d_id)
         <> 2100 + (select sum(c_delivery_cnt) from customer where c_w_id = d_w_id and c_d_id = d.d_id)",
    "select count(*) from customer
     left join (select o_w_id as w, o_d_id as d, o_c_id as c, sum(ol_amount) as delivered
         from orders join order_line on ol_w_id = o_w_id and ol_d_id = o_d_id and ol_o_id = o_id
         where ol_delivery_d is not null group by o_w_id, o_d_id, o_c_id) as l on w = c_w_id and d = c_d_id and c = c_id
     where c_balance + c_ytd_payment <> coalesce(delivered, 0)",
];

/// The numbers of the conditions that do not hold, with how many rows break each.
pub(crate) async fn check(client: &Client) -> Result<Vec<(usize, i64)>> {
    let mut broken = Vec::new();
    for (number, condition) in CONDITIONS.iter().enumerate() {
        let count: i64 = client.query_one(*condition, &[]).await?.get(0);
        if count != 0 {
            broken.push((number + 1, count));
        }
    }
    Ok(broken)
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_are_dates() {
        assert_eq!(super::time(0), "1970-01-01 00:00:00");
        assert_eq!(super::time(951_782_400_000_000), "2000-02-29 00:00:00");
        assert_eq!(super::time(1_767_225_599_000_000), "2025-12-31 23:59:59");
    }

    #[test]
    fn amounts_keep_their_cents() {
        assert_eq!(super::Fixed(-105, 2).to_string(), "-1.05");
        assert_eq!(super::Fixed(5, 4).to_string(), "0.0005");
    }
}
