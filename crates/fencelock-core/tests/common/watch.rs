//! What a program that watches sees: figures that a recorder adds up, and spans and events as a subscriber is told them.
#![allow(dead_code)] // each file uses its part
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{Arc, Mutex, MutexGuard},
};
use tracing::{
    Event, Id, Level, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Record},
};
use tracing_subscriber::{
    Layer,
    layer::Context,
    registry::{LookupSpan, Registry},
};

/// All figures, each as `name{label=value,…}`.
#[derive(Clone)]
pub(crate) struct Figures {
    snapshotter: Snapshotter,
    sums: Arc<Mutex<Sums>>,
}
#[derive(Default)]
struct Sums {
    numbers: BTreeMap<String, f64>,
    values: BTreeMap<String, Vec<f64>>,
    units: BTreeMap<String, (String, String)>,
}
impl Figures {
    pub(crate) fn of(recorder: &DebuggingRecorder) -> Self {
        Self { snapshotter: recorder.snapshotter(), sums: Arc::default() }
    }
    /// A snapshot takes what it tells away: it is added up here.
    fn read(&self) -> MutexGuard<'_, Sums> {
        let mut sums = self.sums.lock().unwrap();
        for (key, unit, description, value) in self.snapshotter.snapshot().into_vec() {
            let (name, mut labels) = (key.key().name().to_owned(), Vec::new());
            labels.extend(key.key().labels().map(|label| format!("{}={}", label.key(), label.value())));
            labels.sort();
            if let (Some(unit), Some(description)) = (unit, description) {
                sums.units.insert(name.clone(), (unit.as_str().to_owned(), description.to_string()));
            }
            let id = format!("{name}{{{}}}", labels.join(","));
            match value {
                DebugValue::Counter(more) => {
                    *sums.numbers.entry(id).or_default() += f64::from(u32::try_from(more).unwrap())
                }
                DebugValue::Gauge(more) => *sums.numbers.entry(id).or_default() += *more,
                DebugValue::Histogram(more) => {
                    sums.values.entry(id).or_default().extend(more.into_iter().map(|value| *value));
                }
            }
        }
        sums
    }
    /// A counter or a gauge; nothing was ever said of it: none.
    pub(crate) fn number(&self, id: &str) -> Option<f64> {
        self.read().numbers.get(id).copied()
    }
    /// All values of a histogram.
    pub(crate) fn values(&self, id: &str) -> Vec<f64> {
        self.read().values.get(id).cloned().unwrap_or_default()
    }
    /// Every figure that there is.
    pub(crate) fn ids(&self) -> Vec<String> {
        let sums = self.read();
        sums.numbers.keys().chain(sums.values.keys()).cloned().collect()
    }
    /// The unit and the description of a name.
    pub(crate) fn described(&self, name: &str) -> Option<(String, String)> {
        self.read().units.get(name).cloned()
    }
}

/// A span or an event, as it was told.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) what: String,
    pub(crate) target: String,
    pub(crate) level: Level,
    /// The spans around it, the nearest first.
    pub(crate) within: Vec<String>,
    pub(crate) fields: BTreeMap<String, String>,
    pub(crate) closed: bool,
}
impl Told {
    pub(crate) fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }
}
/// Keeps everything that is told, in order.
#[derive(Clone, Default)]
pub(crate) struct Watch(Arc<Mutex<Log>>);
#[derive(Default)]
struct Log {
    all: Vec<Told>,
    open: HashMap<u64, usize>,
}
impl Watch {
    /// Of this target and name, about this lock. Events are named by their message.
    pub(crate) fn about(&self, what: &str, lock: &str) -> Vec<Told> {
        let log = self.0.lock().unwrap();
        let ours = log.all.iter().filter(|told| told.target == "fencelock" && told.what.starts_with(what));
        ours.filter(|told| told.field("name") == lock).cloned().collect()
    }
    /// The only one.
    #[track_caller]
    pub(crate) fn one(&self, what: &str, lock: &str) -> Told {
        let all = self.about(what, lock);
        assert!(all.len() == 1, "{what} of {lock}: {all:?}");
        all.into_iter().next().unwrap()
    }
    pub(crate) fn of_token(&self, what: &str, lock: &str, token: &str) -> Told {
        self.about(what, lock).into_iter().find(|told| told.field("token") == token).unwrap()
    }
    /// All that was ever told, as text.
    pub(crate) fn everything(&self) -> String {
        format!("{:?}", self.0.lock().unwrap().all)
    }
}
impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Watch {
    fn on_new_span(&self, attrs: &Attributes<'_>, id: &Id, ctx: Context<'_, S>) {
        let span = ctx.span(id).unwrap();
        let within = span.scope().skip(1).map(|span| span.name().to_owned()).collect();
        let (what, meta) = (span.name().to_owned(), attrs.metadata());
        let mut told = Told {
            what,
            target: meta.target().to_owned(),
            level: *meta.level(),
            within,
            fields: BTreeMap::new(),
            closed: false,
        };
        attrs.record(&mut Fields(&mut told));
        let mut log = self.0.lock().unwrap();
        let at = log.all.len();
        log.open.insert(id.into_u64(), at);
        log.all.push(told);
    }
    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let mut log = self.0.lock().unwrap();
        if let Some(at) = log.open.get(&id.into_u64()).copied() {
            values.record(&mut Fields(&mut log.all[at]));
        }
    }
    fn on_event(&self, event: &Event<'_>, ctx: Context<'_, S>) {
        let within = ctx.event_scope(event).into_iter().flatten().map(|span| span.name().to_owned()).collect();
        let meta = event.metadata();
        let mut told = Told {
            what: String::new(),
            target: meta.target().to_owned(),
            level: *meta.level(),
            within,
            fields: BTreeMap::new(),
            closed: true,
        };
        event.record(&mut Fields(&mut told));
        told.what = told.fields.remove("message").unwrap_or_default();
        self.0.lock().unwrap().all.push(told);
    }
    fn on_close(&self, id: Id, _: Context<'_, S>) {
        let mut log = self.0.lock().unwrap();
        if let Some(at) = log.open.remove(&id.into_u64()) {
            log.all[at].closed = true;
        }
    }
}
struct Fields<'a>(&'a mut Told);
impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.fields.insert(field.name().to_owned(), format!("{value:?}"));
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.fields.insert(field.name().to_owned(), value.to_owned());
    }
}
/// A subscriber that tells this one.
pub(crate) fn subscriber(watch: &Watch) -> impl Subscriber + Send + Sync + use<> {
    use tracing_subscriber::layer::SubscriberExt;
    Registry::default().with(watch.clone())
}
