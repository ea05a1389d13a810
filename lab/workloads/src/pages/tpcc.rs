//! TPC-C as pages: the transactions of [`crate::tpcc::input`] over heaps in order of insertion and B+-trees.
//!
//! Per warehouse about 100 MB, as the paper says (Canim et al., VLDB 2010: 150 warehouses have 15 GB, 500 have 48). Chosen before
//! policies were compared:
//! - Tables are loaded one after the other, then their indexes: primary keys of all tables but HISTORY, customers by name, orders by
//!   customer. Rows have the specification's length and 10 bytes; entries of an index 18 to 24 bytes.
//! - Each transaction draws its warehouse ([`Home::Uniform`]): 20 clients for 150 warehouses have no home.
//! - Pages of 16 KiB, as in its other simulations (its TPC-C text names none); 20 µs of a processor a page, some 2 ms a
//!   transaction, what a processor core of its time needed.
//! - A stream asks for one page after the other. The log is on another device.
//! - Rows of NEW-ORDER that are delivered leave their pages, which are not used again.
//!
//! Orders that were loaded have ten lines; their customers are drawn, which the specification permutes.

use std::collections::VecDeque;

use super::{Access, Heap, PageModel, PageRequest, Space, Tree};
use crate::random::Random;
use crate::tpcc::input::{CustomerSelector, Home, InputGenerator, Kind};
use crate::tpcc::{DISTRICTS, Scale};

/// Size, number of clients, and seed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TpccSetup {
    /// The population.
    pub scale: Scale,
    /// Clients.
    pub clients: usize,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Seed.
    pub seed: u64,
    /// Transactions of all clients together.
    pub transactions: u64,
}

impl TpccSetup {
    /// The specification's population for so many warehouses, 2,000 transactions each.
    #[must_use]
    pub fn new(warehouses: i32, clients: usize, page_bytes: u32, seed: u64) -> Self {
        let transactions = 2_000 * warehouses as u64;
        Self { scale: Scale::full(warehouses), clients, page_bytes, seed, transactions }
    }
}

const DELIVERED_OF_TEN: u64 = 7;
const LOADED_LINES: u64 = 10;
/// Orders whose items stock-level looks at.
const RECENT: usize = 20;

/// An order that was entered in the run.
#[derive(Clone, Copy, Debug)]
struct Order {
    row: u64,
    first_line: u64,
    lines: u64,
    customer: u64,
    new_order: u64,
}

#[derive(Debug, Default)]
struct District {
    /// Loaded orders that are not delivered yet begin here.
    next_loaded: u64,
    entered: VecDeque<Order>,
    recent: VecDeque<(u64, Vec<u32>)>,
    orders: u64,
}

/// The model.
pub struct TpccPages {
    setup: TpccSetup,
    space: Space,
    warehouse: Heap,
    district: Heap,
    customer: Heap,
    history: Heap,
    stock: Heap,
    item: Heap,
    orders: Heap,
    new_order: Heap,
    order_line: Heap,
    item_key: Tree,
    stock_key: Tree,
    customer_key: Tree,
    customer_name: Tree,
    orders_key: Tree,
    orders_customer: Tree,
    new_order_key: Tree,
    order_line_key: Tree,
    inputs: Vec<InputGenerator>,
    pending: Vec<VecDeque<PageRequest>>,
    districts: Vec<District>,
    random: Random,
    transactions_begun: u64,
    new_orders: u64,
}

/// Adds what a transaction touches.
struct Touch<'a> {
    to: &'a mut VecDeque<PageRequest>,
    stream: u16,
}

impl Touch<'_> {
    fn page(&mut self, page: u64, access: Access) {
        self.to.push_back(PageRequest { page, access, stream: self.stream, ahead: false, think_us: 20 });
    }

    fn read(&mut self, page: u64) {
        self.page(page, Access::Read);
    }

    fn change(&mut self, page: u64) {
        self.page(page, Access::Change);
    }

    fn leaf(&mut self, tree: &Tree, position: u64) -> u64 {
        tree.descend(position, |inner| self.page(inner, Access::Read))
    }

    fn seek(&mut self, tree: &Tree, position: u64) {
        let leaf = self.leaf(tree, position);
        self.read(leaf);
    }

    fn append(&mut self, heap: &mut Heap, space: &mut Space) -> u64 {
        let (row, page, is_new) = heap.append(space);
        self.page(page, if is_new { Access::Create } else { Access::Change });
        row
    }

    fn enter(&mut self, tree: &mut Tree, space: &mut Space, group: u64, position: u64) {
        self.leaf(tree, position);
        let (leaf, is_new) = tree.append(space, group);
        self.page(leaf, if is_new { Access::Create } else { Access::Change });
    }
}

impl TpccPages {
    /// A loaded database.
    #[must_use]
    pub fn new(setup: &TpccSetup) -> Self {
        let mut space = Space::default();
        let bytes = setup.page_bytes;
        let warehouses = setup.scale.warehouses as u64;
        let districts = warehouses * DISTRICTS as u64;
        let customers = districts * setup.scale.customers as u64;
        let items = setup.scale.items as u64;
        let mut heap = |rows, length| Heap::load(&mut space, rows, length, bytes);
        let item = heap(items, 92);
        let warehouse = heap(warehouses, 99);
        let district = heap(districts, 105);
        let customer = heap(customers, 665);
        let history = heap(customers, 56);
        let stock = heap(warehouses * items, 316);
        let orders = heap(customers, 34);
        let new_order = heap(customers * (10 - DELIVERED_OF_TEN) / 10, 18);
        let order_line = heap(customers * LOADED_LINES, 64);
        let mut tree = |entries, length| Tree::load(&mut space, entries, length, bytes);
        let clients = 0..setup.clients as u64;
        let input =
            |client| InputGenerator::new(setup.scale, setup.seed, setup.seed + 1, client, Home::Uniform);
        let per_district = setup.scale.customers as u64;
        let next_loaded = per_district * DELIVERED_OF_TEN / 10;
        Self {
            item_key: tree(items, 18),
            stock_key: tree(warehouses * items, 20),
            customer_key: tree(customers, 22),
            customer_name: tree(customers, 40),
            orders_key: tree(customers, 22),
            orders_customer: tree(customers, 24),
            new_order_key: tree(customers * (10 - DELIVERED_OF_TEN) / 10, 22),
            order_line_key: tree(customers * LOADED_LINES, 24),
            warehouse,
            district,
            customer,
            history,
            stock,
            item,
            orders,
            new_order,
            order_line,
            inputs: clients.map(input).collect(),
            pending: vec![VecDeque::new(); setup.clients],
            districts: (0..districts)
                .map(|_| District { next_loaded, orders: per_district, ..District::default() })
                .collect(),
            random: Random::stream(setup.seed, &[0x7cc]),
            setup: *setup,
            space,
            transactions_begun: 0,
            new_orders: 0,
        }
    }

    fn district_of(w_id: i32, d_id: i16) -> u64 {
        (w_id as u64 - 1) * DISTRICTS as u64 + d_id as u64 - 1
    }

    fn customers(&self) -> u64 {
        self.setup.scale.customers as u64
    }

    fn transact(&mut self, stream: usize) {
        self.transactions_begun += 1;
        let mut pending = std::mem::take(&mut self.pending[stream]);
        let mut touch = Touch { to: &mut pending, stream: stream as u16 };
        match self.inputs[stream].kind() {
            Kind::NewOrder => self.new_order(stream, &mut touch),
            Kind::Payment => self.payment(stream, &mut touch),
            Kind::OrderStatus => self.order_status(stream, &mut touch),
            Kind::Delivery => self.delivery(stream, &mut touch),
            Kind::StockLevel => self.stock_level(stream, &mut touch),
        }
        self.pending[stream] = pending;
    }

    fn new_order(&mut self, stream: usize, touch: &mut Touch<'_>) {
        self.new_orders += 1;
        let input = self.inputs[stream].new_order(0);
        let district = Self::district_of(input.w_id, input.d_id);
        let customer = district * self.customers() + input.c_id as u64 - 1;
        touch.read(self.warehouse.page_of(input.w_id as u64 - 1));
        touch.change(self.district.page_of(district));
        touch.seek(&self.customer_key, customer);
        touch.read(self.customer.page_of(customer));
        let items = self.setup.scale.items as u64;
        for line in input.lines() {
            let item = line.i_id as u64 - 1;
            touch.seek(&self.item_key, item);
            if item >= items {
                // No such item: the transaction is rolled back.
                return;
            }
            touch.read(self.item.page_of(item));
            let stock = (line.supply_w_id as u64 - 1) * items + item;
            touch.seek(&self.stock_key, stock);
            touch.change(self.stock.page_of(stock));
        }
        let place = district * self.customers() + self.customers() - 1;
        let row = touch.append(&mut self.orders, &mut self.space);
        touch.enter(&mut self.orders_key, &mut self.space, district, place);
        let by_customer = touch.leaf(&self.orders_customer, customer);
        touch.change(by_customer);
        let new_order = touch.append(&mut self.new_order, &mut self.space);
        touch.enter(&mut self.new_order_key, &mut self.space, district, place * 3 / 10);
        let first_line = self.order_line.rows();
        for _ in input.lines() {
            touch.append(&mut self.order_line, &mut self.space);
            touch.enter(&mut self.order_line_key, &mut self.space, district, place * LOADED_LINES);
        }
        let lines = input.lines().len() as u64;
        let ordered = input.lines().iter().map(|line| line.i_id as u32 - 1).collect();
        let of = &mut self.districts[district as usize];
        of.entered.push_back(Order { row, first_line, lines, customer, new_order });
        of.recent.push_back((first_line, ordered));
        if of.recent.len() > RECENT {
            of.recent.pop_front();
        }
        of.orders += 1;
    }

    /// Reads the customer that is asked for, and tells which one it is.
    fn find_customer(&mut self, district: u64, selector: &CustomerSelector, touch: &mut Touch<'_>) -> u64 {
        let first = district * self.customers();
        match selector {
            CustomerSelector::Id(id) => {
                let customer = first + *id as u64 - 1;
                touch.seek(&self.customer_key, customer);
                customer
            }
            CustomerSelector::LastName(_) => {
                // Three customers of a district share a name: entries side by side, rows anywhere.
                let name = self.random.below(self.customers());
                touch.seek(&self.customer_name, first + name);
                for _ in 0..2 {
                    touch.read(self.customer.page_of(first + self.random.below(self.customers())));
                }
                first + self.random.below(self.customers())
            }
        }
    }

    fn payment(&mut self, stream: usize, touch: &mut Touch<'_>) {
        let input = self.inputs[stream].payment(0);
        touch.change(self.warehouse.page_of(input.w_id as u64 - 1));
        touch.change(self.district.page_of(Self::district_of(input.w_id, input.d_id)));
        let district = Self::district_of(input.c_w_id, input.c_d_id);
        let customer = self.find_customer(district, &input.customer, touch);
        touch.change(self.customer.page_of(customer));
        touch.append(&mut self.history, &mut self.space);
    }

    fn order_status(&mut self, stream: usize, touch: &mut Touch<'_>) {
        let input = self.inputs[stream].order_status();
        let district = Self::district_of(input.w_id, input.d_id);
        let customer = self.find_customer(district, &input.customer, touch);
        touch.read(self.customer.page_of(customer));
        touch.seek(&self.orders_customer, customer);
        // The last order: one that was loaded, unless the customer has ordered since.
        let entered = self.districts[district as usize].entered.iter().rev();
        let last = entered.into_iter().find(|order| order.customer == customer).copied();
        let (row, line, lines) = match last {
            Some(order) => (order.row, order.first_line, order.lines),
            None => (customer, customer * LOADED_LINES, LOADED_LINES),
        };
        touch.read(self.orders.page_of(row));
        touch.seek(&self.order_line_key, customer * LOADED_LINES);
        self.lines(line, lines, Access::Read, touch);
    }

    /// Touches the pages of an order's lines, each once.
    fn lines(&self, first: u64, lines: u64, access: Access, touch: &mut Touch<'_>) {
        let (from, to) = (self.order_line.page_of(first), self.order_line.page_of(first + lines - 1));
        touch.page(from, access);
        if to != from {
            touch.page(to, access);
        }
    }

    fn delivery(&mut self, stream: usize, touch: &mut Touch<'_>) {
        let input = self.inputs[stream].delivery(0);
        for d_id in 1..=DISTRICTS {
            let district = Self::district_of(input.w_id, d_id);
            let per_district = self.customers();
            let waiting = per_district * (10 - DELIVERED_OF_TEN) / 10;
            let of = &mut self.districts[district as usize];
            let order = if of.next_loaded < per_district {
                let number = of.next_loaded;
                of.next_loaded += 1;
                let row = district * per_district + number;
                let new_order = district * waiting + number.saturating_sub(per_district - waiting);
                let customer = district * per_district + self.random.below(per_district);
                Order { row, first_line: row * LOADED_LINES, lines: LOADED_LINES, customer, new_order }
            } else {
                match of.entered.pop_front() {
                    Some(order) => order,
                    None => continue,
                }
            };
            let leaf = touch.leaf(&self.new_order_key, district * waiting);
            touch.change(self.new_order_key.tail(district).unwrap_or(leaf));
            touch.change(self.new_order.page_of(order.new_order));
            touch.seek(&self.orders_key, district * per_district);
            touch.change(self.orders.page_of(order.row));
            touch.seek(&self.order_line_key, order.first_line);
            self.lines(order.first_line, order.lines, Access::Change, touch);
            touch.seek(&self.customer_key, order.customer);
            touch.change(self.customer.page_of(order.customer));
        }
    }

    fn stock_level(&mut self, stream: usize, touch: &mut Touch<'_>) {
        let input = self.inputs[stream].stock_level();
        let district = Self::district_of(input.w_id, input.d_id);
        touch.read(self.district.page_of(district));
        let items = self.setup.scale.items as u64;
        let loaded = RECENT - self.districts[district as usize].recent.len();
        let last = (district + 1) * self.customers();
        touch.seek(&self.order_line_key, last * LOADED_LINES - 1);
        let mut wanted: Vec<u64> = Vec::new();
        for order in last - loaded as u64..last {
            self.lines(order * LOADED_LINES, LOADED_LINES, Access::Read, touch);
            wanted.extend((0..LOADED_LINES).map(|_| self.random.below(items)));
        }
        for (first, ordered) in &self.districts[district as usize].recent {
            self.lines(*first, ordered.len() as u64, Access::Read, touch);
            wanted.extend(ordered.iter().map(|item| u64::from(*item)));
        }
        wanted.sort_unstable();
        wanted.dedup();
        for item in wanted {
            let stock = (input.w_id as u64 - 1) * items + item;
            touch.seek(&self.stock_key, stock);
            touch.read(self.stock.page_of(stock));
        }
    }
}

impl PageModel for TpccPages {
    fn streams(&self) -> usize {
        self.setup.clients
    }

    fn next_step(&mut self, stream: usize, step: &mut Vec<PageRequest>) -> bool {
        if self.pending[stream].is_empty() {
            if self.transactions_begun >= self.setup.transactions {
                return false;
            }
            self.transact(stream);
        }
        step.extend(self.pending[stream].pop_front());
        true
    }

    fn pages(&self) -> u64 {
        self.space.pages()
    }

    fn begun(&self) -> u64 {
        self.new_orders
    }
}
