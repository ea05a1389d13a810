//! The five transactions of TPC-C as an application writes them: one prepared statement a round trip.

use std::time::{Duration, SystemTime};

use rust_decimal::Decimal;
use thermocline_workloads::tpcc::DISTRICTS;
use thermocline_workloads::tpcc::input::{
    CustomerSelector, DeliveryInput, NewOrderInput, OrderStatusInput, PaymentInput, StockLevelInput,
};
use tokio_postgres::{Client, Row, Statement, Transaction};

use crate::Result;

/// The end of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Committed,
    /// As its input asks: an item that does not exist.
    RolledBack,
}

/// The statements, prepared once a connection.
pub(crate) struct Statements {
    customer_and_warehouse: Statement,
    take_order_number: Statement,
    insert_order: Statement,
    insert_new_order: Statement,
    item: Statement,
    /// By district: what its lines say of the stock.
    stock: Vec<Statement>,
    update_stock: Statement,
    insert_line: Statement,
    pay_warehouse: Statement,
    pay_district: Statement,
    customers_by_name: Statement,
    lock_customer: Statement,
    pay_customer: Statement,
    pay_bad_customer: Statement,
    insert_history: Statement,
    customer: Statement,
    last_order: Statement,
    lines: Statement,
    oldest_new_order: Statement,
    delete_new_order: Statement,
    deliver_order: Statement,
    deliver_lines: Statement,
    amount: Statement,
    credit: Statement,
    next_order: Statement,
    low_stock: Statement,
}

impl Statements {
    pub(crate) async fn prepare(client: &Client) -> Result<Self> {
        let mut stock = Vec::new();
        for district in 1..=DISTRICTS {
            let text = format!(
                "select s_quantity, s_data, s_dist_{district:02} from stock where s_w_id = $1 and s_i_id = $2 for update"
            );
            stock.push(client.prepare(&text).await?);
        }
        let prepare = async |text: &str| client.prepare(text).await;
        Ok(Self {
            customer_and_warehouse: prepare(
                "select c_discount, c_last, c_credit, w_tax from customer, warehouse
                 where w_id = $1 and c_w_id = w_id and c_d_id = $2 and c_id = $3",
            )
            .await?,
            take_order_number: prepare(
                "update district set d_next_o_id = d_next_o_id + 1 where d_w_id = $1 and d_id = $2
                 returning d_next_o_id - 1, d_tax",
            )
            .await?,
            insert_order: prepare(
                "insert into orders (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local)
                 values ($1, $2, $3, $4, $5, $6, $7)",
            )
            .await?,
            insert_new_order: prepare("insert into new_order (no_o_id, no_d_id, no_w_id) values ($1, $2, $3)").await?,
            item: prepare("select i_price, i_name, i_data from item where i_id = $1").await?,
            stock,
            update_stock: prepare(
                "update stock set s_quantity = $3, s_ytd = s_ytd + $4, s_order_cnt = s_order_cnt + 1,
                     s_remote_cnt = s_remote_cnt + $5
                 where s_w_id = $1 and s_i_id = $2",
            )
            .await?,
            insert_line: prepare(
                "insert into order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity,
                     ol_amount, ol_dist_info)
                 values ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            )
            .await?,
            pay_warehouse: prepare(
                "update warehouse set w_ytd = w_ytd + $2 where w_id = $1
                 returning w_name, w_street_1, w_street_2, w_city, w_state, w_zip",
            )
            .await?,
            pay_district: prepare(
                "update district set d_ytd = d_ytd + $3 where d_w_id = $1 and d_id = $2
                 returning d_name, d_street_1, d_street_2, d_city, d_state, d_zip",
            )
            .await?,
            customers_by_name: prepare(
                "select c_id from customer where c_w_id = $1 and c_d_id = $2 and c_last = $3 order by c_first",
            )
            .await?,
            lock_customer: prepare(
                "select c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip, c_phone, c_since,
                     c_credit, c_credit_lim, c_discount, c_balance
                 from customer where c_w_id = $1 and c_d_id = $2 and c_id = $3 for update",
            )
            .await?,
            pay_customer: prepare(
                "update customer set c_balance = c_balance - $4, c_ytd_payment = c_ytd_payment + $4,
                     c_payment_cnt = c_payment_cnt + 1
                 where c_w_id = $1 and c_d_id = $2 and c_id = $3",
            )
            .await?,
            pay_bad_customer: prepare(
                "update customer set c_balance = c_balance - $4, c_ytd_payment = c_ytd_payment + $4,
                     c_payment_cnt = c_payment_cnt + 1, c_data = substr($5::text || c_data, 1, 500)
                 where c_w_id = $1 and c_d_id = $2 and c_id = $3 returning substr(c_data, 1, 200)",
            )
            .await?,
            insert_history: prepare(
                "insert into history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data)
                 values ($1, $2, $3, $4, $5, $6, $7, $8)",
            )
            .await?,
            customer: prepare(
                "select c_balance, c_first, c_middle, c_last from customer
                 where c_w_id = $1 and c_d_id = $2 and c_id = $3",
            )
            .await?,
            last_order: prepare(
                "select o_id, o_carrier_id, o_entry_d from orders where o_w_id = $1 and o_d_id = $2 and o_c_id = $3
                 order by o_id desc limit 1",
            )
            .await?,
            lines: prepare(
                "select ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d from order_line
                 where ol_w_id = $1 and ol_d_id = $2 and ol_o_id = $3",
            )
            .await?,
            oldest_new_order: prepare(
                "select no_o_id from new_order where no_w_id = $1 and no_d_id = $2 order by no_o_id limit 1 for update",
            )
            .await?,
            delete_new_order: prepare(
                "delete from new_order where no_w_id = $1 and no_d_id = $2 and no_o_id = $3",
            )
            .await?,
            deliver_order: prepare(
                "update orders set o_carrier_id = $4 where o_w_id = $1 and o_d_id = $2 and o_id = $3 returning o_c_id",
            )
            .await?,
            deliver_lines: prepare(
                "update order_line set ol_delivery_d = $4 where ol_w_id = $1 and ol_d_id = $2 and ol_o_id = $3",
            )
            .await?,
            amount: prepare(
                "select sum(ol_amount) from order_line where ol_w_id = $1 and ol_d_id = $2 and ol_o_id = $3",
            )
            .await?,
            credit: prepare(
                "update customer set c_balance = c_balance + $4, c_delivery_cnt = c_delivery_cnt + 1
                 where c_w_id = $1 and c_d_id = $2 and c_id = $3",
            )
            .await?,
            next_order: prepare("select d_next_o_id from district where d_w_id = $1 and d_id = $2").await?,
            low_stock: prepare(
                "select count(distinct s_i_id) from order_line, stock
                 where ol_w_id = $1 and ol_d_id = $2 and ol_o_id < $3 and ol_o_id >= $3 - 20
                   and s_w_id = $1 and s_i_id = ol_i_id and s_quantity < $4",
            )
            .await?,
        })
    }
}

fn time(at_us: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(at_us.unsigned_abs())
}

fn cents(amount: i64) -> Decimal {
    Decimal::new(amount, 2)
}

/// Clause 2.4.
pub(crate) async fn new_order(tx: Transaction<'_>, s: &Statements, input: &NewOrderInput) -> Result<End> {
    let (w, d, c) = (input.w_id, input.d_id, input.c_id);
    let found = tx.query_one(&s.customer_and_warehouse, &[&w, &d, &c]).await?;
    let (discount, tax): (Decimal, Decimal) = (found.get(0), found.get(3));
    let taken = tx.query_one(&s.take_order_number, &[&w, &d]).await?;
    let (order, district_tax): (i32, Decimal) = (taken.get(0), taken.get(1));
    let lines = input.lines();
    let local = i16::from(lines.iter().all(|line| line.supply_w_id == w));
    let count = i16::try_from(lines.len()).expect("an order has 15 lines at most");
    tx.execute(&s.insert_order, &[&order, &d, &w, &c, &time(input.at_us), &count, &local]).await?;
    tx.execute(&s.insert_new_order, &[&order, &d, &w]).await?;
    let mut total = Decimal::ZERO;
    for (number, line) in (1_i16..).zip(lines) {
        let Some(item) = tx.query_opt(&s.item, &[&line.i_id]).await? else {
            tx.rollback().await?;
            return Ok(End::RolledBack);
        };
        let price: Decimal = item.get(0);
        let of_district = &s.stock[usize::from(d.unsigned_abs()) - 1];
        let stock = tx.query_one(of_district, &[&line.supply_w_id, &line.i_id]).await?;
        let (there, info): (i16, &str) = (stock.get(0), stock.get(2));
        let left =
            if there >= line.quantity + 10 { there - line.quantity } else { there - line.quantity + 91 };
        let remote = i32::from(line.supply_w_id != w);
        let quantity = i64::from(line.quantity);
        tx.execute(&s.update_stock, &[&line.supply_w_id, &line.i_id, &left, &quantity, &remote]).await?;
        let amount = price * Decimal::from(line.quantity);
        total += amount;
        let names: [&(dyn tokio_postgres::types::ToSql + Sync); 9] =
            [&order, &d, &w, &number, &line.i_id, &line.supply_w_id, &line.quantity, &amount, &info];
        tx.execute(&s.insert_line, &names).await?;
    }
    std::hint::black_box(total * (Decimal::ONE - discount) * (Decimal::ONE + tax + district_tax));
    tx.commit().await?;
    Ok(End::Committed)
}

/// The customer that is asked for: the middle one of a name, by first name.
async fn find(tx: &Transaction<'_>, s: &Statements, w: i32, d: i16, who: CustomerSelector) -> Result<i32> {
    match who {
        CustomerSelector::Id(id) => Ok(id),
        CustomerSelector::LastName(name) => {
            let rows: Vec<Row> = tx.query(&s.customers_by_name, &[&w, &d, &name.as_str()]).await?;
            let middle = rows.get(rows.len().div_ceil(2).saturating_sub(1));
            middle
                .map(|row| row.get(0))
                .ok_or_else(|| format!("no customer is called {}", name.as_str()).into())
        }
    }
}

/// Clause 2.5.
pub(crate) async fn payment(tx: Transaction<'_>, s: &Statements, input: &PaymentInput) -> Result<End> {
    let (w, d, amount) = (input.w_id, input.d_id, cents(input.amount_cents));
    let warehouse = tx.query_one(&s.pay_warehouse, &[&w, &amount]).await?;
    let district = tx.query_one(&s.pay_district, &[&w, &d, &amount]).await?;
    let (c_w, c_d) = (input.c_w_id, input.c_d_id);
    let id = find(&tx, s, c_w, c_d, input.customer).await?;
    let customer = tx.query_one(&s.lock_customer, &[&c_w, &c_d, &id]).await?;
    if customer.get::<_, &str>(10) == "BC" {
        let entry = format!("{id} {c_d} {c_w} {d} {w} {amount} ");
        tx.query_one(&s.pay_bad_customer, &[&c_w, &c_d, &id, &amount, &entry]).await?;
    } else {
        tx.execute(&s.pay_customer, &[&c_w, &c_d, &id, &amount]).await?;
    }
    let data = format!("{}    {}", warehouse.get::<_, &str>(0), district.get::<_, &str>(0));
    tx.execute(&s.insert_history, &[&id, &c_d, &c_w, &d, &w, &time(input.at_us), &amount, &data]).await?;
    tx.commit().await?;
    Ok(End::Committed)
}

/// Clause 2.6.
pub(crate) async fn order_status(
    tx: Transaction<'_>,
    s: &Statements,
    input: &OrderStatusInput,
) -> Result<End> {
    let (w, d) = (input.w_id, input.d_id);
    let id = find(&tx, s, w, d, input.customer).await?;
    tx.query_one(&s.customer, &[&w, &d, &id]).await?;
    if let Some(order) = tx.query_opt(&s.last_order, &[&w, &d, &id]).await? {
        tx.query(&s.lines, &[&w, &d, &order.get::<_, i32>(0)]).await?;
    }
    tx.commit().await?;
    Ok(End::Committed)
}

/// Clause 2.7.
pub(crate) async fn delivery(tx: Transaction<'_>, s: &Statements, input: &DeliveryInput) -> Result<End> {
    let w = input.w_id;
    for d in 1..=DISTRICTS {
        let Some(oldest) = tx.query_opt(&s.oldest_new_order, &[&w, &d]).await? else { continue };
        let order: i32 = oldest.get(0);
        if tx.execute(&s.delete_new_order, &[&w, &d, &order]).await? == 0 {
            continue;
        }
        let delivered = tx.query_one(&s.deliver_order, &[&w, &d, &order, &input.carrier_id]).await?;
        let customer: i32 = delivered.get(0);
        tx.execute(&s.deliver_lines, &[&w, &d, &order, &time(input.at_us)]).await?;
        let amount: Decimal = tx.query_one(&s.amount, &[&w, &d, &order]).await?.get(0);
        tx.execute(&s.credit, &[&w, &d, &customer, &amount]).await?;
    }
    tx.commit().await?;
    Ok(End::Committed)
}

/// Clause 2.8.
pub(crate) async fn stock_level(tx: Transaction<'_>, s: &Statements, input: &StockLevelInput) -> Result<End> {
    let (w, d) = (input.w_id, input.d_id);
    let next: i32 = tx.query_one(&s.next_order, &[&w, &d]).await?.get(0);
    tx.query_one(&s.low_stock, &[&w, &d, &next, &input.threshold]).await?;
    tx.commit().await?;
    Ok(End::Committed)
}
