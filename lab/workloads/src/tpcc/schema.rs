//! The nine tables of TPC-C (clause 1.3) and their indexes.
//!
//! | table | primary key | secondary index |
//! |---|---|---|
//! | warehouse | hash (w) | |
//! | district | hash (w, d) | |
//! | customer | hash (w, d, c) | ordered (w, d, last, first): selection by name |
//! | history | none | |
//! | new_order | ordered (w, d, o): the oldest | |
//! | orders | hash (w, d, o) | ordered, unique (w, d, c, o): a customer's last |
//! | order_line | ordered (w, d, o, number): the lines of an order, of recent orders | |
//! | item | hash (i) | |
//! | stock | hash (w, i) | |
//!
//! Hash where rows are asked for one by one, ordered where ranges are. Where the specification says "at least m digits"
//! for a sum or a counter that a fast engine drives over them within hours, the column is wider: `decimal(18,2)` for
//! balances and year-to-date sums, `integer` for counters, `bigint` for S_YTD.

use thermocline_engine::row::{Char, Dec, Timestamp, Varchar};
use thermocline_engine::{Database, Index, IndexSchema, Result, Table, TableSchema, row};

/// An amount of money in a balance or a sum: cents are exact.
pub type Money = Dec<18, 2>;
/// A tax or a discount.
pub type Rate = Dec<4, 4>;

row! {
    /// WAREHOUSE.
    pub struct Warehouse as WarehouseRow {
        w_id: i32,
        w_name: Varchar<10>,
        w_street_1: Varchar<20>,
        w_street_2: Varchar<20>,
        w_city: Varchar<20>,
        w_state: Char<2>,
        w_zip: Char<9>,
        w_tax: Rate,
        w_ytd: Money,
    }
}

row! {
    /// DISTRICT.
    pub struct District as DistrictRow {
        d_id: i16,
        d_w_id: i32,
        d_name: Varchar<10>,
        d_street_1: Varchar<20>,
        d_street_2: Varchar<20>,
        d_city: Varchar<20>,
        d_state: Char<2>,
        d_zip: Char<9>,
        d_tax: Rate,
        d_ytd: Money,
        d_next_o_id: i32,
    }
}

row! {
    /// CUSTOMER.
    pub struct Customer as CustomerRow {
        c_id: i32,
        c_d_id: i16,
        c_w_id: i32,
        c_first: Varchar<16>,
        c_middle: Char<2>,
        c_last: Varchar<16>,
        c_street_1: Varchar<20>,
        c_street_2: Varchar<20>,
        c_city: Varchar<20>,
        c_state: Char<2>,
        c_zip: Char<9>,
        c_phone: Char<16>,
        c_since: Timestamp,
        c_credit: Char<2>,
        c_credit_lim: Dec<12, 2>,
        c_discount: Rate,
        c_balance: Money,
        c_ytd_payment: Money,
        c_payment_cnt: i32,
        c_delivery_cnt: i32,
        c_data: Varchar<500>,
    }
}

row! {
    /// HISTORY.
    #[derive(Default)]
    pub struct History as HistoryRow {
        h_c_id: i32,
        h_c_d_id: i16,
        h_c_w_id: i32,
        h_d_id: i16,
        h_w_id: i32,
        h_date: Timestamp,
        h_amount: Dec<6, 2>,
        h_data: Varchar<24>,
    }
}

row! {
    /// NEW-ORDER.
    pub struct NewOrder as NewOrderRow {
        no_o_id: i32,
        no_d_id: i16,
        no_w_id: i32,
    }
}

row! {
    /// ORDER; the table is called `orders`, since ORDER is a word of SQL.
    pub struct Order as OrderRow {
        o_id: i32,
        o_d_id: i16,
        o_w_id: i32,
        o_c_id: i32,
        o_entry_d: Timestamp,
        o_carrier_id: Option<i16>,
        o_ol_cnt: i16,
        o_all_local: i16,
    }
}

row! {
    /// ORDER-LINE.
    #[derive(Default)]
    pub struct OrderLine as OrderLineRow {
        ol_o_id: i32,
        ol_d_id: i16,
        ol_w_id: i32,
        ol_number: i16,
        ol_i_id: i32,
        ol_supply_w_id: i32,
        ol_delivery_d: Option<Timestamp>,
        ol_quantity: i16,
        ol_amount: Dec<6, 2>,
        ol_dist_info: Char<24>,
    }
}

row! {
    /// ITEM.
    pub struct Item as ItemRow {
        i_id: i32,
        i_im_id: i32,
        i_name: Varchar<24>,
        i_price: Dec<5, 2>,
        i_data: Varchar<50>,
    }
}

row! {
    /// STOCK.
    pub struct Stock as StockRow {
        s_i_id: i32,
        s_w_id: i32,
        s_quantity: i16,
        s_dist_01: Char<24>,
        s_dist_02: Char<24>,
        s_dist_03: Char<24>,
        s_dist_04: Char<24>,
        s_dist_05: Char<24>,
        s_dist_06: Char<24>,
        s_dist_07: Char<24>,
        s_dist_08: Char<24>,
        s_dist_09: Char<24>,
        s_dist_10: Char<24>,
        s_ytd: i64,
        s_order_cnt: i32,
        s_remote_cnt: i32,
        s_data: Varchar<50>,
    }
}

/// The tables and indexes of a TPC-C database, looked up once.
#[derive(Clone)]
#[expect(missing_docs, reason = "each is named after its table; indexes stand beside their tables")]
pub struct Tables {
    pub warehouse_table: Table,
    pub warehouse: Index,
    pub district_table: Table,
    pub district: Index,
    pub customer_table: Table,
    pub customer: Index,
    pub customer_by_name: Index,
    pub history_table: Table,
    pub new_order_table: Table,
    pub new_order: Index,
    pub order_table: Table,
    pub order: Index,
    pub order_by_customer: Index,
    pub order_line_table: Table,
    pub order_line: Index,
    pub item_table: Table,
    pub item: Index,
    pub stock_table: Table,
    pub stock: Index,
}

/// The definitions of the nine tables.
#[must_use]
pub fn definitions() -> [TableSchema; 9] {
    let key = "pk";
    [
        TableSchema::new("warehouse")
            .columns(Warehouse::schema_columns())
            .primary_key(IndexSchema::hash(key, &["w_id"])),
        TableSchema::new("district")
            .columns(District::schema_columns())
            .primary_key(IndexSchema::hash(key, &["d_w_id", "d_id"])),
        TableSchema::new("customer")
            .columns(Customer::schema_columns())
            .primary_key(IndexSchema::hash(key, &["c_w_id", "c_d_id", "c_id"]))
            .index(IndexSchema::ordered("by_name", &["c_w_id", "c_d_id", "c_last", "c_first"])),
        TableSchema::new("history").columns(History::schema_columns()),
        TableSchema::new("new_order")
            .columns(NewOrder::schema_columns())
            .primary_key(IndexSchema::ordered(key, &["no_w_id", "no_d_id", "no_o_id"])),
        TableSchema::new("orders")
            .columns(Order::schema_columns())
            .primary_key(IndexSchema::hash(key, &["o_w_id", "o_d_id", "o_id"]))
            .index(IndexSchema::ordered("by_customer", &["o_w_id", "o_d_id", "o_c_id", "o_id"]).unique()),
        TableSchema::new("order_line")
            .columns(OrderLine::schema_columns())
            .primary_key(IndexSchema::ordered(key, &["ol_w_id", "ol_d_id", "ol_o_id", "ol_number"])),
        TableSchema::new("item")
            .columns(Item::schema_columns())
            .primary_key(IndexSchema::hash(key, &["i_id"])),
        TableSchema::new("stock")
            .columns(Stock::schema_columns())
            .primary_key(IndexSchema::hash(key, &["s_w_id", "s_i_id"])),
    ]
}

impl Tables {
    /// Creates the nine tables.
    ///
    /// # Errors
    /// One of them exists already, or the engine refuses.
    pub fn create(database: &Database) -> Result<Self> {
        for definition in definitions() {
            database.create_table(definition)?;
        }
        Self::open(database)
    }

    /// Looks the nine tables up.
    ///
    /// # Errors
    /// One of them or its index does not exist.
    pub fn open(database: &Database) -> Result<Self> {
        let table = |name| database.table(name);
        let (warehouse, district, customer) = (table("warehouse")?, table("district")?, table("customer")?);
        let (history, new_order, orders) = (table("history")?, table("new_order")?, table("orders")?);
        let (order_line, item, stock) = (table("order_line")?, table("item")?, table("stock")?);
        Ok(Self {
            warehouse: warehouse.primary(),
            warehouse_table: warehouse,
            district: district.primary(),
            district_table: district,
            customer: customer.primary(),
            customer_by_name: customer.index("by_name")?,
            customer_table: customer,
            history_table: history,
            new_order: new_order.primary(),
            new_order_table: new_order,
            order: orders.primary(),
            order_by_customer: orders.index("by_customer")?,
            order_table: orders,
            order_line: order_line.primary(),
            order_line_table: order_line,
            item: item.primary(),
            item_table: item,
            stock: stock.primary(),
            stock_table: stock,
        })
    }
}

/// An amount of `cents`.
#[inline]
#[must_use]
pub const fn money(cents: i64) -> Money {
    Money::from_scaled(cents)
}

/// A decimal as the integer that it is in its last digit: cents, or ten-thousandths.
#[inline]
#[must_use]
pub const fn units<const P: u8, const S: u8>(value: Dec<P, S>) -> i64 {
    value.scaled64()
}
