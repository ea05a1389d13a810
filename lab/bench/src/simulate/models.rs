//! Page models as traces.

use thermocline_pool::cache::Told;
use thermocline_pool::simulate::trace::{BATCH, Result as TraceResult, TraceKind, TraceRequest, TraceSource};
use thermocline_workloads::pages::{self, Access, PageModel, PageRequest};

use super::{Result, SimulateSettings, setting};

/// The models that can be named.
pub const MODELS: [&str; 7] = ["tpcc-150", "tpcc-500", "ods", "ods-zipf", "erp", "zipf", "scan"];

/// A model of a name, at a scale.
#[must_use]
pub fn model(name: &str, scale: f64, page_bytes: u32, seed: u64) -> Option<Box<dyn PageModel>> {
    let warehouses = |number: f64| ((number * scale) as i32).max(1);
    Some(match name {
        "tpcc-150" => {
            let setup = pages::tpcc::TpccSetup::new(warehouses(150.0), 20, page_bytes, seed);
            Box::new(pages::tpcc::TpccPages::new(&setup))
        }
        "tpcc-500" => {
            let setup = pages::tpcc::TpccSetup::new(warehouses(500.0), 15, page_bytes, seed);
            Box::new(pages::tpcc::TpccPages::new(&setup))
        }
        "ods" => Box::new(pages::ods::OdsPages::new(&pages::ods::OdsSetup::new(scale, page_bytes, seed))),
        "ods-zipf" => Box::new(pages::ods_zipf::ZipfPages::new(scale, page_bytes, seed)),
        "erp" => Box::new(pages::erp::ErpPages::new(&pages::erp::ErpSetup::new(scale, 8, page_bytes, seed))),
        "zipf" => Box::new(pages::simple::Uncorrelated::new((2e6 * scale) as u64, 0.99, 4_000_000, seed)),
        "scan" => Box::new(pages::simple::Scans::new((1e5 * scale) as u64, 20)),
        _ => return None,
    })
}

pub(super) fn source(name: &str, settings: &SimulateSettings) -> Result<Box<dyn TraceSource>> {
    match model(name, settings.scale, settings.page_bytes as u32, settings.seed) {
        Some(model) => Ok(Box::new(ModelSource::new(model))),
        None => setting(format!("{name:?} is no model; name one of {}", MODELS.join(", "))),
    }
}

/// A request of a model as one of a trace.
#[must_use]
pub(crate) fn traced(request: &PageRequest) -> TraceRequest {
    TraceRequest {
        page: request.page,
        version: 0,
        think_us: request.think_us,
        stream: request.stream,
        kind: match request.access {
            Access::Read => TraceKind::Read,
            Access::Change => TraceKind::Write,
            Access::Create => TraceKind::Create,
        },
        told: if request.ahead { Told::Sequential } else { Told::Random },
    }
}

/// The streams of a model in turns, a step each.
pub struct ModelSource {
    model: Box<dyn PageModel>,
    next: usize,
    ended: Vec<bool>,
    step: Vec<PageRequest>,
}

impl ModelSource {
    /// Over a model at its beginning.
    #[must_use]
    pub fn new(model: Box<dyn PageModel>) -> Self {
        let ended = vec![false; model.streams()];
        Self { model, next: 0, ended, step: Vec::new() }
    }
}

impl TraceSource for ModelSource {
    fn next_batch(&mut self, batch: &mut Vec<TraceRequest>) -> TraceResult<bool> {
        let before = batch.len();
        while batch.len() < before + BATCH && self.ended.iter().any(|ended| !ended) {
            let stream = self.next;
            self.next = (self.next + 1) % self.ended.len();
            if self.ended[stream] {
                continue;
            }
            self.step.clear();
            self.ended[stream] = !self.model.next_step(stream, &mut self.step);
            batch.extend(self.step.iter().map(traced));
        }
        Ok(batch.len() > before)
    }
}
