//! Stock-level (clause 2.8): of the items in the last twenty orders of a district, how many are low in stock. Read-only.

use std::ops::{Bound, ControlFlow};

use thermocline_engine::row::KeyBuf;
use thermocline_engine::{Direction, KeyRange, Result, Transaction};

use super::{Scratch, district_key, missing, number_key};
use crate::tpcc::input::StockLevelInput;
use crate::tpcc::schema::{DistrictRow, OrderLineRow, StockRow, Tables};

/// Number of recent orders that are looked at.
const RECENT_ORDERS: i32 = 20;
/// Stock rows that are asked for at once.
const TOGETHER: usize = 16;

/// The output of stock-level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StockLevelOutput {
    /// Different items whose stock is below the threshold.
    pub low_stock: u32,
}

/// Counts recently sold items whose stock is low.
///
/// # Errors
/// A conflict with another transaction, or a row that the population lacks.
pub async fn stock_level(
    transaction: &mut Transaction,
    tables: &Tables,
    scratch: &mut Scratch,
    input: &StockLevelInput,
) -> Result<StockLevelOutput> {
    let StockLevelInput { w_id, d_id, threshold } = *input;
    let next_o_id = transaction
        .read(&tables.district, &district_key(w_id, d_id), |row| DistrictRow(row).d_next_o_id())
        .await?
        .ok_or_else(|| missing("district", w_id, d_id, 0))?;

    let items = &mut scratch.numbers;
    items.clear();
    let (first, end) = (number_key(w_id, d_id, next_o_id - RECENT_ORDERS), number_key(w_id, d_id, next_o_id));
    transaction
        .scan(
            &tables.order_line,
            KeyRange::between(Bound::Included(&*first), Bound::Excluded(&*end)),
            Direction::Forward,
            |row| {
                items.push(OrderLineRow(row).ol_i_id());
                ControlFlow::Continue(())
            },
        )
        .await?;
    items.sort_unstable();
    items.dedup();

    let mut low_stock = 0;
    for some in items.chunks(TOGETHER) {
        let keys: [KeyBuf; TOGETHER] = std::array::from_fn(|at| {
            some.get(at).map_or_else(KeyBuf::new, |s_i_id| KeyBuf::new().i32(w_id).i32(*s_i_id))
        });
        transaction.prefetch_cold(&tables.stock, keys[..some.len()].iter().map(|key| &**key)).await?;
        for (key, s_i_id) in keys.iter().zip(some) {
            let is_low = transaction
                .read(&tables.stock, key, |row| StockRow(row).s_quantity() < threshold)
                .await?
                .ok_or_else(|| missing("stock", w_id, 0, *s_i_id))?;
            low_stock += u32::from(is_low);
        }
    }
    Ok(StockLevelOutput { low_stock })
}
