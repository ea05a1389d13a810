//! The twelve consistency conditions of clause 3.3.2, on any database with the schema, under one snapshot.
//!
//! Every table is read once. The history, which has no key, is summed up first. Then the districts follow one
//! after another; a district's orders, new-orders and order lines are joined by merging, as the latter two come in the
//! order of their keys. So memory holds the history's sums and one district at a time.
//!
//! Two conditions need a reading. Condition 11 counts what was delivered at the start; as it stands it holds for the
//! initial population only. The sum of C_DELIVERY_CNT is what was delivered since, and makes it hold at any time. With
//! [`NewOrders::Kept`] (deliveries that keep the rows of NEW-ORDER) conditions 5 and 11 say what is true then.
//!
//! Rows that belong to no district, customer or order are violations too, of the condition that would have counted
//! them.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::{Bound, ControlFlow};

use thermocline_engine::row::KeyBuf;
use thermocline_engine::{
    Database, Direction, Index, Isolation, KeyRange, Result, Transaction, TransactionOptions,
};

use super::orders_delivered;
use super::schema::{
    CustomerRow, DistrictRow, HistoryRow, NewOrderRow, OrderLineRow, OrderRow, Tables, WarehouseRow, units,
};
use super::transactions::district_key;

/// Number of violations of a condition that are reported with their keys; the others are counted.
pub const VIOLATIONS_MAX: usize = 20;

/// The treatment of the rows of NEW-ORDER by deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum NewOrders {
    /// Deleted them, as the specification says.
    #[default]
    Deleted,
    /// Kept them: [`DeliveryRule::Keep`](super::input::DeliveryRule::Keep).
    Kept,
}

/// One violation of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The key of the row, with the names of its columns.
    pub key: String,
    /// The finding.
    pub found: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.found)
    }
}

/// The result of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionResult {
    /// Its number in the specification, 1 to 12.
    pub number: u8,
    /// Its statement.
    pub statement: &'static str,
    /// Warehouses, districts or rows that were looked at.
    pub checked: u64,
    /// Violations in all.
    pub violated: u64,
    /// The first [`VIOLATIONS_MAX`] of them.
    pub violations: Vec<Violation>,
}

impl ConditionResult {
    /// Was it never violated?
    #[must_use]
    pub const fn holds(&self) -> bool {
        self.violated == 0
    }
}

impl fmt::Display for ConditionResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, statement, checked, violated, violations } = self;
        if self.holds() {
            return write!(f, "condition {number} holds ({checked} checked): {statement}");
        }
        write!(f, "condition {number} is violated {violated} times ({checked} checked): {statement}")?;
        for violation in violations {
            write!(f, "\n  {violation}")?;
        }
        Ok(())
    }
}

const STATEMENTS: [&str; 12] = [
    "W_YTD = sum(D_YTD) of the warehouse",
    "D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID) of the district",
    "max(NO_O_ID) - min(NO_O_ID) + 1 = rows in NEW-ORDER of the district",
    "sum(O_OL_CNT) = rows in ORDER-LINE of the district",
    "O_CARRIER_ID is null if and only if NEW-ORDER holds the order",
    "O_OL_CNT = rows in ORDER-LINE of the order",
    "OL_DELIVERY_D is null if and only if O_CARRIER_ID of the order is null",
    "W_YTD = sum(H_AMOUNT) of the warehouse",
    "D_YTD = sum(H_AMOUNT) of the district",
    "C_BALANCE = sum(OL_AMOUNT) of delivered lines - sum(H_AMOUNT) of the customer",
    "rows in ORDER - rows in NEW-ORDER = orders delivered at the start + sum(C_DELIVERY_CNT) of the district",
    "C_BALANCE + C_YTD_PAYMENT = sum(OL_AMOUNT) of delivered lines of the customer",
];

/// The statements of conditions 5 and 11 when deliveries keep the rows of NEW-ORDER.
const STATEMENTS_KEPT: [(usize, &str); 2] = [
    (5, "if O_CARRIER_ID is null, NEW-ORDER holds the order"),
    (
        11,
        "rows in ORDER - rows in NEW-ORDER = orders delivered at the start; orders with a carrier = those + \
         sum(C_DELIVERY_CNT) of the district",
    ),
];

/// Checks the twelve conditions.
///
/// # Errors
/// The tables are not there, or the engine fails. A violation is not an error.
pub fn check(database: &Database) -> Result<Vec<ConditionResult>> {
    check_with(database, NewOrders::Deleted)
}

/// Checks the twelve conditions on a database whose deliveries did with NEW-ORDER what `new_orders` says.
///
/// # Errors
/// The tables are not there, or the engine fails. A violation is not an error.
pub fn check_with(database: &Database, new_orders: NewOrders) -> Result<Vec<ConditionResult>> {
    let tables = Tables::open(database)?;
    let options = TransactionOptions::default().isolation(Isolation::Snapshot).read_only();
    database.run(options, async |transaction| check_in(transaction, &tables, new_orders).await)
}

/// Checks the twelve conditions under the snapshot of `transaction`.
///
/// # Errors
/// The engine fails.
pub async fn check_in(
    transaction: &mut Transaction,
    tables: &Tables,
    new_orders: NewOrders,
) -> Result<Vec<ConditionResult>> {
    let mut results = Results::new(new_orders);
    let mut paid = Paid::read(transaction, tables).await?;
    let mut warehouses = BTreeMap::new();
    transaction
        .scan_table(&tables.warehouse_table, |row| {
            let row = WarehouseRow(row);
            warehouses.insert(row.w_id(), units(row.w_ytd()));
            ControlFlow::Continue(())
        })
        .await?;
    let mut districts = BTreeMap::new();
    transaction
        .scan_table(&tables.district_table, |row| {
            let row = DistrictRow(row);
            districts.insert((row.d_w_id(), row.d_id()), (units(row.d_ytd()), row.d_next_o_id()));
            ControlFlow::Continue(())
        })
        .await?;

    let mut sums_d_ytd = BTreeMap::new();
    for (&(w_id, d_id), &(d_ytd, d_next_o_id)) in &districts {
        *sums_d_ytd.entry(w_id).or_default() += d_ytd;
        let h_amount = paid.districts.remove(&(w_id, d_id)).unwrap_or(0);
        results.equal(9, || district_name(w_id, d_id), ("D_YTD", d_ytd), ("sum(H_AMOUNT)", h_amount));
        let district = District::read(transaction, tables, w_id, d_id, &mut results).await?;
        district.check(d_next_o_id, new_orders, &mut paid, &mut results);
    }
    for (w_id, w_ytd) in warehouses {
        let name = || format!("W_ID {w_id}");
        let sum_d_ytd = sums_d_ytd.remove(&w_id).unwrap_or(0);
        let sum_h_amount = paid.warehouses.remove(&w_id).unwrap_or(0);
        results.equal(1, name, ("W_YTD", w_ytd), ("sum(D_YTD)", sum_d_ytd));
        results.equal(8, name, ("W_YTD", w_ytd), ("sum(H_AMOUNT)", sum_h_amount));
    }
    for (w_id, sum_d_ytd) in sums_d_ytd {
        let found =
            || (format!("W_ID {w_id}"), format!("DISTRICT has {sum_d_ytd}, but there is no such warehouse"));
        results.check(1, false, found);
    }
    paid.report_rest(&mut results);
    report_strays(transaction, tables, districts.keys(), &mut results).await?;
    Ok(results.conditions)
}

fn district_name(w_id: i32, d_id: i16) -> String {
    format!("(W_ID, D_ID) ({w_id}, {d_id})")
}

/// The conditions as they are being checked.
struct Results {
    conditions: Vec<ConditionResult>,
}

impl Results {
    fn new(new_orders: NewOrders) -> Self {
        let mut conditions: Vec<ConditionResult> = (1..)
            .zip(STATEMENTS)
            .map(|(number, statement)| ConditionResult {
                number,
                statement,
                checked: 0,
                violated: 0,
                violations: Vec::new(),
            })
            .collect();
        if new_orders == NewOrders::Kept {
            for (number, statement) in STATEMENTS_KEPT {
                conditions[number - 1].statement = statement;
            }
        }
        Self { conditions }
    }

    /// Counts one check of condition `number`; if it failed, `violation` tells the key and what was found.
    fn check(&mut self, number: usize, holds: bool, violation: impl FnOnce() -> (String, String)) {
        let condition = &mut self.conditions[number - 1];
        condition.checked += 1;
        if !holds {
            condition.violated += 1;
            if condition.violations.len() < VIOLATIONS_MAX {
                let (key, found) = violation();
                condition.violations.push(Violation { key, found });
            }
        }
    }

    /// Checks that two named numbers are equal.
    fn equal(&mut self, number: usize, key: impl FnOnce() -> String, left: (&str, i64), right: (&str, i64)) {
        self.check(number, left.1 == right.1, || {
            (key(), format!("{} is {}, {} is {}", left.0, left.1, right.0, right.1))
        });
    }
}

/// The sums of the rows of HISTORY, in cents.
#[derive(Default)]
struct Paid {
    warehouses: HashMap<i32, i64>,
    districts: HashMap<(i32, i16), i64>,
    customers: HashMap<(i32, i16, i32), i64>,
}

impl Paid {
    async fn read(transaction: &mut Transaction, tables: &Tables) -> Result<Self> {
        let mut paid = Self::default();
        transaction
            .scan_table(&tables.history_table, |row| {
                let row = HistoryRow(row);
                let amount = units(row.h_amount());
                *paid.warehouses.entry(row.h_w_id()).or_default() += amount;
                *paid.districts.entry((row.h_w_id(), row.h_d_id())).or_default() += amount;
                *paid.customers.entry((row.h_c_w_id(), row.h_c_d_id(), row.h_c_id())).or_default() += amount;
                ControlFlow::Continue(())
            })
            .await?;
        Ok(paid)
    }

    /// Reports the payments that are left: their warehouse, district or customer does not exist.
    fn report_rest(self, results: &mut Results) {
        let mut warehouses: Vec<_> = self.warehouses.into_iter().collect();
        warehouses.sort_unstable();
        for (w_id, amount) in warehouses {
            let found =
                || (format!("W_ID {w_id}"), format!("HISTORY has {amount}, but there is no such warehouse"));
            results.check(8, false, found);
        }
        let mut districts: Vec<_> = self.districts.into_iter().collect();
        districts.sort_unstable();
        for ((w_id, d_id), amount) in districts {
            let found = || {
                (district_name(w_id, d_id), format!("HISTORY has {amount}, but there is no such district"))
            };
            results.check(9, false, found);
        }
        let mut customers: Vec<_> = self.customers.into_iter().collect();
        customers.sort_unstable();
        for (customer, amount) in customers {
            let key = || format!("(C_W_ID, C_D_ID, C_ID) {customer:?}");
            results
                .check(10, false, || (key(), format!("HISTORY has {amount}, but there is no such customer")));
        }
    }
}

/// An order and what its lines add up to.
struct OrderState {
    o_id: i32,
    c_id: i32,
    ol_cnt: i16,
    has_carrier: bool,
    is_new: bool,
    lines: i64,
    delivered_cents: i64,
}

struct CustomerState {
    balance_cents: i64,
    ytd_payment_cents: i64,
    delivered_cents: i64,
}

/// One district, read and joined.
struct District {
    w_id: i32,
    d_id: i16,
    /// By number.
    orders: Vec<OrderState>,
    /// Lowest number, highest number, and count of the rows in NEW-ORDER.
    new_orders: Option<(i32, i32, i64)>,
    lines: i64,
    customers: HashMap<i32, CustomerState>,
    delivery_cnt: i64,
}

impl District {
    /// Reads a district. Checks on the way what one row of NEW-ORDER or ORDER-LINE decides.
    async fn read(
        transaction: &mut Transaction,
        tables: &Tables,
        w_id: i32,
        d_id: i16,
        results: &mut Results,
    ) -> Result<Self> {
        let prefix = district_key(w_id, d_id);
        let range = || KeyRange::prefix(&prefix);
        let order_name = |o_id: i32| format!("(O_W_ID, O_D_ID, O_ID) ({w_id}, {d_id}, {o_id})");

        let mut orders = Vec::new();
        transaction
            .scan(&tables.order_by_customer, range(), Direction::Forward, |row| {
                let row = OrderRow(row);
                orders.push(OrderState {
                    o_id: row.o_id(),
                    c_id: row.o_c_id(),
                    ol_cnt: row.o_ol_cnt(),
                    has_carrier: row.o_carrier_id().is_some(),
                    is_new: false,
                    lines: 0,
                    delivered_cents: 0,
                });
                ControlFlow::Continue(())
            })
            .await?;
        orders.sort_unstable_by_key(|order| order.o_id);

        let mut at = 0;
        let mut new_orders = None;
        transaction
            .scan(&tables.new_order, range(), Direction::Forward, |row| {
                let o_id = NewOrderRow(row).no_o_id();
                let (_, highest, count) = new_orders.get_or_insert((o_id, o_id, 0));
                (*highest, *count) = (o_id, *count + 1);
                match advance(&mut orders, &mut at, o_id) {
                    Some(order) => order.is_new = true,
                    None => results.check(5, false, || {
                        (order_name(o_id), "NEW-ORDER holds it, ORDER does not".to_owned())
                    }),
                }
                ControlFlow::Continue(())
            })
            .await?;

        let (mut at, mut lines) = (0, 0);
        transaction
            .scan(&tables.order_line, range(), Direction::Forward, |row| {
                let row = OrderLineRow(row);
                let (o_id, number) = (row.ol_o_id(), row.ol_number());
                lines += 1;
                let Some(order) = advance(&mut orders, &mut at, o_id) else {
                    let found =
                        || (order_name(o_id), format!("ORDER-LINE has its line {number}, ORDER has no row"));
                    results.check(6, false, found);
                    return ControlFlow::Continue(());
                };
                order.lines += 1;
                let is_delivered = row.ol_delivery_d().is_some();
                if is_delivered {
                    order.delivered_cents += units(row.ol_amount());
                }
                results.check(7, is_delivered == order.has_carrier, || {
                    let key =
                        format!("(OL_W_ID, OL_D_ID, OL_O_ID, OL_NUMBER) ({w_id}, {d_id}, {o_id}, {number})");
                    let null = |set: bool| if set { "set" } else { "null" };
                    let found = format!(
                        "OL_DELIVERY_D is {}, O_CARRIER_ID is {}",
                        null(is_delivered),
                        null(order.has_carrier)
                    );
                    (key, found)
                });
                ControlFlow::Continue(())
            })
            .await?;

        let (mut customers, mut delivery_cnt) = (HashMap::new(), 0);
        transaction
            .scan(&tables.customer_by_name, range(), Direction::Forward, |row| {
                let row = CustomerRow(row);
                delivery_cnt += i64::from(row.c_delivery_cnt());
                customers.insert(
                    row.c_id(),
                    CustomerState {
                        balance_cents: units(row.c_balance()),
                        ytd_payment_cents: units(row.c_ytd_payment()),
                        delivered_cents: 0,
                    },
                );
                ControlFlow::Continue(())
            })
            .await?;
        Ok(Self { w_id, d_id, orders, new_orders, lines, customers, delivery_cnt })
    }

    /// Checks what the whole district decides.
    fn check(mut self, d_next_o_id: i32, new_orders_rule: NewOrders, paid: &mut Paid, results: &mut Results) {
        let (w_id, d_id) = (self.w_id, self.d_id);
        let name = || district_name(w_id, d_id);
        let last_o_id = ("D_NEXT_O_ID - 1", i64::from(d_next_o_id) - 1);
        let max_o_id = self.orders.last().map_or(0, |order| order.o_id);
        results.equal(2, name, last_o_id, ("max(O_ID)", max_o_id.into()));
        let mut new_order_count = 0;
        if let Some((lowest, highest, count)) = self.new_orders {
            new_order_count = count;
            results.equal(2, name, last_o_id, ("max(NO_O_ID)", highest.into()));
            let span = i64::from(highest) - i64::from(lowest) + 1;
            results.equal(3, name, ("max(NO_O_ID) - min(NO_O_ID) + 1", span), ("rows in NEW-ORDER", count));
        } else {
            // Everything is delivered: there is no span that could have a gap.
            results.check(3, true, || unreachable!("it holds"));
        }
        let sum_ol_cnt = self.orders.iter().map(|order| i64::from(order.ol_cnt)).sum();
        results.equal(4, name, ("sum(O_OL_CNT)", sum_ol_cnt), ("rows in ORDER-LINE", self.lines));

        for order in &self.orders {
            let key = || format!("(O_W_ID, O_D_ID, O_ID) ({w_id}, {d_id}, {})", order.o_id);
            let OrderState { has_carrier, is_new, .. } = *order;
            let holds = match new_orders_rule {
                NewOrders::Deleted => has_carrier != is_new,
                NewOrders::Kept => has_carrier || is_new,
            };
            results.check(5, holds, || {
                let carrier = if has_carrier { "set" } else { "null" };
                let holds = if is_new { "holds it" } else { "does not hold it" };
                (key(), format!("O_CARRIER_ID is {carrier}, NEW-ORDER {holds}"))
            });
            results.equal(6, key, ("O_OL_CNT", order.ol_cnt.into()), ("rows in ORDER-LINE", order.lines));
            match self.customers.get_mut(&order.c_id) {
                Some(customer) => customer.delivered_cents += order.delivered_cents,
                None => {
                    results.check(12, false, || (key(), format!("customer {} does not exist", order.c_id)));
                }
            }
        }

        let orders = self.orders.len() as i64;
        let delivered_at_start = i64::from(orders_delivered(self.customers.len() as i32));
        let delivered = delivered_at_start + self.delivery_cnt;
        let difference = ("rows in ORDER - rows in NEW-ORDER", orders - new_order_count);
        match new_orders_rule {
            NewOrders::Deleted => {
                results.equal(
                    11,
                    name,
                    difference,
                    ("delivered at the start + sum(C_DELIVERY_CNT)", delivered),
                );
            }
            NewOrders::Kept => {
                results.equal(11, name, difference, ("delivered at the start", delivered_at_start));
                let with_carrier = self.orders.iter().filter(|order| order.has_carrier).count() as i64;
                let right = ("delivered at the start + sum(C_DELIVERY_CNT)", delivered);
                results.equal(11, name, ("orders with a carrier", with_carrier), right);
            }
        }

        let mut customers: Vec<_> = self.customers.into_iter().collect();
        customers.sort_unstable_by_key(|(c_id, _)| *c_id);
        for (c_id, customer) in customers {
            let key = || format!("(C_W_ID, C_D_ID, C_ID) ({w_id}, {d_id}, {c_id})");
            let CustomerState { balance_cents, ytd_payment_cents, delivered_cents } = customer;
            let paid_cents = paid.customers.remove(&(w_id, d_id, c_id)).unwrap_or(0);
            let right = ("sum(OL_AMOUNT) - sum(H_AMOUNT)", delivered_cents - paid_cents);
            results.equal(10, key, ("C_BALANCE", balance_cents), right);
            let left = ("C_BALANCE + C_YTD_PAYMENT", balance_cents + ytd_payment_cents);
            results.equal(12, key, left, ("sum(OL_AMOUNT)", delivered_cents));
        }
    }
}

/// The order with number `o_id`, found by moving `at` forward: the numbers asked for ascend.
fn advance<'a>(orders: &'a mut [OrderState], at: &mut usize, o_id: i32) -> Option<&'a mut OrderState> {
    while orders.get(*at).is_some_and(|order| order.o_id < o_id) {
        *at += 1;
    }
    orders.get_mut(*at).filter(|order| order.o_id == o_id)
}

/// Reports rows between the districts that exist: the first one of each gap.
async fn report_strays(
    transaction: &mut Transaction,
    tables: &Tables,
    districts: impl Iterator<Item = &(i32, i16)> + Clone,
    results: &mut Results,
) -> Result<()> {
    type Name = fn(&[u8]) -> (i32, i16);
    let indexes: [(usize, &str, &Index, Name); 4] = [
        (2, "ORDER", &tables.order_by_customer, |row| (OrderRow(row).o_w_id(), OrderRow(row).o_d_id())),
        (3, "NEW-ORDER", &tables.new_order, |row| (NewOrderRow(row).no_w_id(), NewOrderRow(row).no_d_id())),
        (4, "ORDER-LINE", &tables.order_line, |row| {
            (OrderLineRow(row).ol_w_id(), OrderLineRow(row).ol_d_id())
        }),
        (10, "CUSTOMER", &tables.customer_by_name, |row| {
            (CustomerRow(row).c_w_id(), CustomerRow(row).c_d_id())
        }),
    ];
    for (number, table, index, name) in indexes {
        let mut start: Option<KeyBuf> = None;
        for district in districts.clone().map(Some).chain([None]) {
            let end = district.map(|(w_id, d_id)| district_key(*w_id, *d_id));
            let range = KeyRange::between(
                start.as_deref().map_or(Bound::Unbounded, Bound::Included),
                end.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
            );
            let mut stray = None;
            transaction
                .scan(index, range, Direction::Forward, |row| {
                    stray = Some(name(row));
                    ControlFlow::Break(())
                })
                .await?;
            if let Some((w_id, d_id)) = stray {
                results.check(number, false, || {
                    (
                        district_name(w_id, d_id),
                        format!("{table} has rows of it, but there is no such district"),
                    )
                });
            }
            start = district.map(|(w_id, d_id)| district_key(*w_id, *d_id + 1));
        }
    }
    Ok(())
}
