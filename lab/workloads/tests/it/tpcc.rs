//! The five transactions, one by one and mixed.

use std::ops::ControlFlow;

use thermocline_engine::row::KeyBuf;
use thermocline_engine::{
    Database, Direction, Index, Isolation, KeyRange, Options, Result, Table, Transaction, TransactionOptions,
    block_on, run_tasks,
};
use thermocline_workloads::rows::editing;
use thermocline_workloads::tpcc::check::{NewOrders, check, check_with};
use thermocline_workloads::tpcc::generate::Population;
use thermocline_workloads::tpcc::input::{
    CustomerSelector, DeliveryInput, DeliveryRule, Home, InputGenerator, Kind, NewOrderInput, NewOrderLine,
    OrderStatusInput, PaymentInput, StockLevelInput,
};
use thermocline_workloads::tpcc::load::{LoadOptions, load};
use thermocline_workloads::tpcc::random::last_name;
use thermocline_workloads::tpcc::schema::{
    Customer, District, History, Order, OrderLine, Stock, Tables, Warehouse, units,
};
use thermocline_workloads::tpcc::terminal::{
    Completed, DeliveryCursor, Hooks, Input, Output, Terminal, TerminalOptions,
};

use crate::{LOADED_AT_US, loaded, population};

const NOW_US: i64 = LOADED_AT_US + 1_000_000;

fn terminal(database: &Database, tables: &Tables, number: u64, options: TerminalOptions) -> Terminal {
    let scale = population(2).scale;
    let generator = InputGenerator::new(scale, 7, 1, number, Home::Uniform);
    Terminal::new(database, tables, generator, options)
}

/// Executes one transaction.
fn execute(database: &Database, tables: &Tables, input: &Input) -> Completed {
    block_on(terminal(database, tables, 0, TerminalOptions::default()).execute(input)).unwrap()
}

/// Reads one row.
fn read<R>(database: &Database, index: &Index, key: &[u8], mut decode: impl FnMut(&[u8]) -> R) -> R {
    let read = async |transaction: &mut Transaction| transaction.read(index, key, &mut decode).await;
    database.run(TransactionOptions::default(), read).unwrap().expect("the row is there")
}

/// All rows of an ordered index that begin with a prefix.
fn rows<R>(database: &Database, index: &Index, prefix: &[u8], decode: impl Fn(&[u8]) -> R) -> Vec<R> {
    let scan = async |transaction: &mut Transaction| -> Result<Vec<R>> {
        let mut rows = Vec::new();
        transaction
            .scan(index, KeyRange::prefix(prefix), Direction::Forward, |row| {
                rows.push(decode(row));
                ControlFlow::Continue(())
            })
            .await?;
        Ok(rows)
    };
    database.run(TransactionOptions::default(), scan).unwrap()
}

/// All rows of a table.
fn table_rows<R>(database: &Database, table: &Table, decode: impl Fn(&[u8]) -> R) -> Vec<R> {
    let scan = async |transaction: &mut Transaction| -> Result<Vec<R>> {
        let mut rows = Vec::new();
        transaction
            .scan_table(table, |row| {
                rows.push(decode(row));
                ControlFlow::Continue(())
            })
            .await?;
        Ok(rows)
    };
    database.run(TransactionOptions::default(), scan).unwrap()
}

fn assert_consistent(database: &Database) {
    for result in check(database).unwrap() {
        assert!(result.holds(), "{result}");
        assert!(result.checked > 0, "{result}");
    }
}

fn number_key(w_id: i32, d_id: i16, number: i32) -> KeyBuf {
    KeyBuf::new().i32(w_id).i16(d_id).i32(number)
}

#[test]
fn a_loaded_population_is_complete_and_consistent() {
    let (database, tables) = loaded(2);
    assert_consistent(&database);
    assert_eq!(rows(&database, &tables.new_order, &[], |_| ()).len(), 2 * 10 * 3);
    assert_eq!(rows(&database, &tables.order_by_customer, &[], |_| ()).len(), 2 * 10 * 10);
    assert_eq!(rows(&database, &tables.customer_by_name, &[], |_| ()).len(), 2 * 10 * 10);
    let lines = |w_id| {
        let orders = (1..=10).flat_map(move |d_id| population(2).orders(w_id, d_id));
        orders.map(|order| order.lines().len()).sum::<usize>()
    };
    assert_eq!(rows(&database, &tables.order_line, &[], |_| ()).len(), lines(1) + lines(2));
    for (w_id, i_id) in [(1, 1), (1, 100), (2, 50)] {
        let key = KeyBuf::new().i32(w_id).i32(i_id);
        let stock = read(&database, &tables.stock, &key, Stock::decode);
        let expected = population(2).stock(w_id).nth(i_id as usize - 1).unwrap();
        assert_eq!(stock.s_data, *expected.s_data);
        assert_eq!(stock.s_dist_07, *expected.s_dist[6]);
    }
}

#[test]
fn what_is_loaded_does_not_depend_on_the_threads() {
    let load_with = |threads, batch_rows| {
        let database = Database::open_in_memory(Options::default()).unwrap();
        let rows_max = std::sync::atomic::AtomicU64::new(0);
        let progress = |progress: thermocline_workloads::tpcc::load::Progress| {
            rows_max.fetch_max(progress.rows, std::sync::atomic::Ordering::Relaxed);
        };
        let options = LoadOptions { threads, batch_rows };
        let tables = load(&database, &population(1), options, &progress).unwrap();
        let lines = rows(&database, &tables.order_line, &[], OrderLine::decode);
        let customers = rows(&database, &tables.customer_by_name, &[], Customer::decode);
        (lines, customers, rows_max.into_inner())
    };
    assert!(load_with(1, 1_000_000) == load_with(3, 7));
}

/// An order of the given (item, warehouse, quantity).
fn order(c_id: i32, lines: &[(i32, i32, i16)]) -> Input {
    let lines: Vec<NewOrderLine> = lines
        .iter()
        .map(|(i_id, supply_w_id, quantity)| NewOrderLine {
            i_id: *i_id,
            supply_w_id: *supply_w_id,
            quantity: *quantity,
        })
        .collect();
    Input::NewOrder(NewOrderInput::new(1, 3, c_id, NOW_US, &lines))
}

#[test]
fn new_order_writes_what_the_profile_says() {
    let (database, tables) = loaded(2);
    let stock_key = |w_id, i_id| KeyBuf::new().i32(w_id).i32(i_id);
    let before = read(&database, &tables.stock, &stock_key(2, 40), Stock::decode);
    let completed = execute(&database, &tables, &order(4, &[(90, 1, 2), (40, 2, 9), (7, 1, 1), (40, 2, 1)]));
    assert_eq!((completed.kind, completed.rolled_back), (Kind::NewOrder, false));
    let Output::NewOrder(output) = completed.output else { panic!("{completed:?}") };
    assert_eq!(output.o_id, 11);

    let district = read(&database, &tables.district, &KeyBuf::new().i32(1).i16(3), District::decode);
    assert_eq!((district.d_next_o_id, units(district.d_tax)), (12, output.d_tax_e4));
    let order = read(&database, &tables.order, &number_key(1, 3, 11), Order::decode);
    assert_eq!((order.o_c_id, order.o_ol_cnt, order.o_all_local, order.o_carrier_id), (4, 4, 0, None));
    assert_eq!(order.o_entry_d.0, NOW_US);
    assert_eq!(rows(&database, &tables.new_order, &number_key(1, 3, 11), |_| ()).len(), 1);

    let lines = rows(&database, &tables.order_line, &number_key(1, 3, 11), OrderLine::decode);
    let items: Vec<_> = lines.iter().map(|line| (line.ol_number, line.ol_i_id, line.ol_quantity)).collect();
    assert_eq!(items, [(1, 90, 2), (2, 40, 9), (3, 7, 1), (4, 40, 1)], "in the order of the input");
    let prices: Vec<i64> = population(2).items().map(|item| item.i_price_cents).collect();
    let mut sum_cents = 0;
    for (line, shown) in lines.iter().zip(output.lines()) {
        let price = prices[line.ol_i_id as usize - 1];
        assert_eq!(units(line.ol_amount), price * i64::from(line.ol_quantity));
        assert_eq!((shown.i_price_cents, shown.amount_cents), (price, units(line.ol_amount)));
        assert_eq!(line.ol_delivery_d, None);
        sum_cents += shown.amount_cents;
    }
    let exact = sum_cents as f64
        * (1.0 - output.c_discount_e4 as f64 / 1e4)
        * (1.0 + (output.w_tax_e4 + output.d_tax_e4) as f64 / 1e4);
    assert!((output.total_cents as f64 - exact).abs() < 0.51, "{} for {exact}", output.total_cents);

    // The item that was ordered twice, from the other warehouse.
    let after = read(&database, &tables.stock, &stock_key(2, 40), Stock::decode);
    assert_eq!((after.s_ytd, after.s_order_cnt, after.s_remote_cnt), (10, 2, 2));
    let fill = |quantity: i16, ordered: i16| {
        if quantity >= ordered + 10 { quantity - ordered } else { quantity - ordered + 91 }
    };
    assert_eq!(after.s_quantity, fill(fill(before.s_quantity, 9), 1));
    assert_eq!(lines[1].ol_dist_info, before.s_dist_03);
    let local = read(&database, &tables.stock, &stock_key(1, 7), Stock::decode);
    assert_eq!((local.s_order_cnt, local.s_remote_cnt), (1, 0));
    assert_consistent(&database);
}

#[test]
fn an_unused_item_rolls_the_order_back() {
    let (database, tables) = loaded(1);
    let stock_key = KeyBuf::new().i32(1).i32(5);
    let before = read(&database, &tables.stock, &stock_key, Stock::decode);
    let completed = execute(&database, &tables, &order(4, &[(5, 1, 2), (101, 1, 9)]));
    assert!(completed.rolled_back);
    let Output::NewOrder(output) = completed.output else { panic!("{completed:?}") };
    assert!(output.must_roll_back);
    assert_eq!(output.o_id, 11, "the number is displayed all the same");
    assert_eq!(read(&database, &tables.stock, &stock_key, Stock::decode), before);
    assert_eq!(rows(&database, &tables.order_line, &number_key(1, 3, 11), |_| ()).len(), 0);
    let again = execute(&database, &tables, &order(4, &[(5, 1, 2)]));
    assert!(
        matches!(again.output, Output::NewOrder(output) if output.o_id == 11),
        "the number is free again"
    );
    assert_consistent(&database);
}

fn payment(customer: CustomerSelector) -> Input {
    Input::Payment(PaymentInput {
        w_id: 1,
        d_id: 2,
        c_w_id: 2,
        c_d_id: 9,
        customer,
        amount_cents: 12_345,
        at_us: NOW_US,
    })
}

#[test]
fn payment_is_noted_everywhere() {
    let (database, tables) = loaded(2);
    let credit = |credit: &str| population(2).customers(2, 9).find(|customer| &*customer.c_credit == credit);
    for customer in [credit("GC"), credit("BC")].into_iter().flatten() {
        let before = read(&database, &tables.warehouse, &KeyBuf::new().i32(1), Warehouse::decode);
        let completed = execute(&database, &tables, &payment(CustomerSelector::Id(customer.c_id)));
        let Output::Payment(output) = completed.output else { panic!("{completed:?}") };
        assert_eq!((output.c_id, output.c_balance_cents), (customer.c_id, -1_000 - 12_345));
        assert_eq!(output.c_last, customer.c_last);
        let after = read(&database, &tables.warehouse, &KeyBuf::new().i32(1), Warehouse::decode);
        assert_eq!(units(after.w_ytd), units(before.w_ytd) + 12_345);

        let row = read(&database, &tables.customer, &number_key(2, 9, customer.c_id), Customer::decode);
        assert_eq!((units(row.c_ytd_payment), row.c_payment_cnt), (1_000 + 12_345, 2));
        if &*customer.c_credit == "BC" {
            let start = format!("{} 9 2 2 1 123.45|{}", customer.c_id, &customer.c_data[..50]);
            assert!(row.c_data.starts_with(&start), "{}", row.c_data);
            assert_eq!(*output.c_data, row.c_data[..200]);
        } else {
            assert_eq!(row.c_data, *customer.c_data);
            assert!(output.c_data.is_empty());
        }
        let payments = table_rows(&database, &tables.history_table, History::decode);
        let last = payments.iter().find(|payment| {
            payment.h_date.0 == NOW_US && payment.h_c_id == customer.c_id && payment.h_c_w_id == 2
        });
        let last = last.expect("the payment is in the history");
        assert_eq!((last.h_w_id, last.h_d_id, last.h_c_d_id, units(last.h_amount)), (1, 2, 9, 12_345));
        let district = population(2).district(1, 2);
        assert_eq!(last.h_data, format!("{}    {}", population(2).warehouse(1).w_name, district.d_name));
    }
    assert!(credit("BC").is_some(), "the seed gives the district a customer with bad credit");
    assert_consistent(&database);
}

#[test]
fn customers_are_selected_by_name_in_the_middle() {
    // The ten customers have ten names: four of them get the same one.
    let (database, tables) = loaded(2);
    let name = last_name(3);
    let mut namesakes = Vec::new();
    for c_id in [2, 4, 6, 9] {
        let key = number_key(2, 9, c_id);
        database
            .run(TransactionOptions::default(), async |transaction| {
                let row = transaction
                    .update(
                        &tables.customer,
                        &key,
                        editing("customer", |editor| {
                            thermocline_workloads::tpcc::schema::CustomerRow::set_c_last(editor, &name)?;
                            Ok(Customer::decode(editor.row()))
                        }),
                    )
                    .await?;
                namesakes.push(row.expect("the customer is there"));
                Ok(())
            })
            .unwrap();
    }
    namesakes.sort_by(|a, b| a.c_first.cmp(&b.c_first));
    let completed = execute(&database, &tables, &payment(CustomerSelector::LastName(name)));
    let Output::Payment(output) = completed.output else { panic!("{completed:?}") };
    assert_eq!(output.c_id, namesakes[1].c_id, "position 2 of 4");

    let unknown = payment(CustomerSelector::LastName(last_name(999)));
    let mut terminal = terminal(&database, &tables, 0, TerminalOptions::default());
    assert!(block_on(terminal.execute(&unknown)).is_err());
}

#[test]
fn order_status_shows_the_last_order() {
    let (database, tables) = loaded(1);
    let ask = Input::OrderStatus(OrderStatusInput { w_id: 1, d_id: 3, customer: CustomerSelector::Id(4) });
    let loaded_order = population(1).orders(1, 3).find(|order| order.o_c_id == 4).unwrap();
    let Output::OrderStatus(output) = execute(&database, &tables, &ask).output else {
        panic!("another output")
    };
    assert_eq!((output.o_id, output.carrier_id), (loaded_order.o_id, loaded_order.o_carrier_id));
    assert_eq!(output.lines().len(), loaded_order.lines().len());

    execute(&database, &tables, &order(4, &[(5, 1, 2), (6, 1, 9)]));
    let Output::OrderStatus(output) = execute(&database, &tables, &ask).output else {
        panic!("another output")
    };
    assert_eq!((output.o_id, output.entry_us, output.carrier_id), (11, NOW_US, None));
    let lines: Vec<_> =
        output.lines().iter().map(|line| (line.i_id, line.quantity, line.delivery_us)).collect();
    assert_eq!(lines, [(5, 2, None), (6, 9, None)]);
}

fn deliver(rule: DeliveryRule) -> Input {
    Input::Delivery(DeliveryInput { w_id: 1, carrier_id: 6, at_us: NOW_US, rule })
}

#[test]
fn deliveries_take_the_oldest_orders_until_there_are_none() {
    let (database, tables) = loaded(1);
    for expected in [Some(8), Some(9), Some(10), None] {
        let completed = execute(&database, &tables, &deliver(DeliveryRule::Delete));
        let Output::Delivery(output) = completed.output else { panic!("{completed:?}") };
        assert_eq!(output.delivered, [expected; 10]);
        assert_eq!(output.skipped(), if expected.is_some() { 0 } else { 10 });
        let Some(o_id) = expected else { continue };
        let order = read(&database, &tables.order, &number_key(1, 4, o_id), Order::decode);
        assert_eq!(order.o_carrier_id, Some(6));
        let lines = rows(&database, &tables.order_line, &number_key(1, 4, o_id), OrderLine::decode);
        assert!(lines.iter().all(|line| line.ol_delivery_d.is_some_and(|at| at.0 == NOW_US)));
        let sum: i64 = lines.iter().map(|line| units(line.ol_amount)).sum();
        let customer = read(&database, &tables.customer, &number_key(1, 4, order.o_c_id), Customer::decode);
        assert_eq!((units(customer.c_balance), customer.c_delivery_cnt), (sum - 1_000, 1));
        assert_consistent(&database);
    }
    execute(&database, &tables, &order(4, &[(5, 1, 2)]));
    let completed = execute(&database, &tables, &deliver(DeliveryRule::Delete));
    let Output::Delivery(output) = completed.output else { panic!("{completed:?}") };
    assert_eq!((output.delivered[2], output.skipped()), (Some(11), 9));
    assert_consistent(&database);
}

#[test]
fn deliveries_that_keep_new_orders_deliver_each_order_once() {
    let (database, tables) = loaded(1);
    let cursor = DeliveryCursor::new(&population(1).scale);
    for expected in [Some(8), Some(9), Some(10), None] {
        // From the cursor, and from the start: the search skips what is delivered.
        let start = if expected == Some(9) { [0; 10] } else { cursor.start(1) };
        let completed = execute(&database, &tables, &deliver(DeliveryRule::Keep(start)));
        let Output::Delivery(output) = completed.output else { panic!("{completed:?}") };
        assert_eq!(output.delivered, [expected; 10]);
        cursor.advance(1, &output);
    }
    assert_eq!(cursor.start(1), [11; 10]);
    assert_eq!(rows(&database, &tables.new_order, &[], |_| ()).len(), 30, "all rows are kept");
    for result in check_with(&database, NewOrders::Kept).unwrap() {
        assert!(result.holds(), "{result}");
    }
    assert!(
        !check(&database).unwrap()[4].holds(),
        "by the specification's rule they should have been deleted"
    );
}

#[test]
fn stock_level_counts_different_items_of_recent_orders() {
    let (database, tables) = loaded(1);
    let expected = |threshold: i16| {
        let mut items: Vec<i32> = population(1)
            .orders(1, 5)
            .flat_map(|order| order.lines().to_vec())
            .map(|line| line.ol_i_id)
            .collect();
        items.sort_unstable();
        items.dedup();
        let stock: Vec<i16> = population(1).stock(1).map(|stock| stock.s_quantity).collect();
        items.into_iter().filter(|i_id| stock[*i_id as usize - 1] < threshold).count() as u32
    };
    for threshold in [10, 50, 101] {
        let ask = Input::StockLevel(StockLevelInput { w_id: 1, d_id: 5, threshold });
        let Output::StockLevel(output) = execute(&database, &tables, &ask).output else {
            panic!("another output")
        };
        assert_eq!(output.low_stock, expected(threshold), "threshold {threshold}");
    }
    assert!(expected(50) > 0 && expected(50) < expected(101), "the thresholds tell something apart");
}

/// Counts a fixed number of transactions.
struct Counting {
    left: u32,
    kinds: [u32; 5],
    rolled_back: u32,
    slept_us: u64,
}

impl Counting {
    fn new(left: u32) -> Self {
        Self { left, kinds: [0; 5], rolled_back: 0, slept_us: 0 }
    }
}

impl Hooks for Counting {
    fn now_us(&mut self) -> i64 {
        NOW_US
    }

    fn goes_on(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        self.left > 0
    }

    async fn sleep(&mut self, time_us: u64) {
        self.slept_us += time_us;
    }

    fn begins(&mut self, _kind: Kind) {}

    fn completed(&mut self, completed: &Completed) {
        assert!(completed.attempts >= 1);
        self.kinds[completed.kind as usize] += 1;
        self.rolled_back += u32::from(completed.rolled_back);
    }
}

#[test]
fn the_mix_keeps_the_conditions() {
    let (database, tables) = loaded(2);
    let mut hooks = Counting::new(501);
    let mut terminal = terminal(&database, &tables, 1, TerminalOptions::default());
    block_on(terminal.run(&mut hooks)).unwrap();
    assert_eq!(hooks.kinds, [225, 215, 20, 20, 20]);
    assert!(hooks.rolled_back > 0, "one order in a hundred, of 225");
    assert_eq!(hooks.slept_us, 0);
    assert_consistent(&database);
}

#[test]
fn keying_and_think_times_are_kept_on_demand() {
    let (database, tables) = loaded(2);
    let mut hooks = Counting::new(11);
    let options = TerminalOptions { waits: true, ..TerminalOptions::default() };
    block_on(terminal(&database, &tables, 1, options).run(&mut hooks)).unwrap();
    assert!(hooks.slept_us > 10 * 2_000_000, "{}", hooks.slept_us);
}

#[test]
fn terminals_side_by_side_keep_the_conditions() {
    let runs = [
        (Isolation::ReadCommitted, false),
        (Isolation::Snapshot, false),
        (Isolation::RepeatableRead, false),
        (Isolation::Serializable, false),
        (Isolation::ReadCommitted, true),
        (Isolation::Snapshot, true),
    ];
    for (isolation, keep) in runs {
        let (database, tables) = loaded(2);
        let cursor = keep.then(|| DeliveryCursor::new(&population(2).scale));
        std::thread::scope(|scope| {
            for number in 0..4 {
                let options = TerminalOptions {
                    transaction: TransactionOptions::default().isolation(isolation),
                    keep_new_orders: cursor.clone(),
                    ..TerminalOptions::default()
                };
                let mut terminal = terminal(&database, &tables, number, options);
                scope.spawn(move || block_on(terminal.run(&mut Counting::new(150))).unwrap());
            }
        });
        let new_orders = if keep { NewOrders::Kept } else { NewOrders::Deleted };
        for result in check_with(&database, new_orders).unwrap() {
            assert!(result.holds(), "{isolation}: {result}");
        }
    }
}

#[test]
fn terminals_in_flight_on_one_thread_keep_the_conditions() {
    let (database, tables) = loaded(1);
    let tasks = (0..8).map(|number| {
        let generator = InputGenerator::new(population(1).scale, 7, 1, number, Home::Uniform);
        let mut terminal = Terminal::new(&database, &tables, generator, TerminalOptions::default());
        async move { terminal.run(&mut Counting::new(60)).await.unwrap() }
    });
    run_tasks(tasks.collect());
    assert_consistent(&database);
}

#[test]
fn a_reopened_database_has_everything() {
    let directory = std::env::temp_dir().join(format!("thermocline-workloads-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    let summary = |database: &Database, tables: &Tables| {
        let lines = rows(database, &tables.order_line, &[], OrderLine::decode);
        let customers = rows(database, &tables.customer_by_name, &[], Customer::decode);
        let mut stock = table_rows(database, &tables.stock_table, Stock::decode);
        stock.sort_by_key(|stock| (stock.s_w_id, stock.s_i_id));
        (lines, customers, stock)
    };
    let database = Database::open(&directory, Options::default()).unwrap();
    let tables = load(&database, &population(2), LoadOptions::default(), &|_| {}).unwrap();
    block_on(terminal(&database, &tables, 1, TerminalOptions::default()).run(&mut Counting::new(200)))
        .unwrap();
    let before = summary(&database, &tables);
    drop(tables);
    database.close().unwrap();

    let database = Database::open(&directory, Options::default()).unwrap();
    let tables = Tables::open(&database).unwrap();
    assert!(summary(&database, &tables) == before, "the rows are the same after reopening");
    assert_consistent(&database);
    block_on(terminal(&database, &tables, 2, TerminalOptions::default()).run(&mut Counting::new(100)))
        .unwrap();
    assert_consistent(&database);
    drop(tables);
    database.close().unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn loading_twice_is_refused() {
    let (database, _tables) = loaded(1);
    let again: Population = population(1);
    assert!(load(&database, &again, LoadOptions::default(), &|_| {}).is_err());
}
