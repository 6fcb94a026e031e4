//! How much each route takes of the rooms that routes share, and how often its records had to leave.

use parking_lot::Mutex;
use prometheus::{IntCounterVec, IntGaugeVec};

use super::registry::{Made, Meaning, MetricRegistry};

/// The rooms, and what they hold.
const ROOMS: [Meaning; 5] = [
    ("memory", "answers in memory"),
    ("baselines", "what the guard compares with, in memory"),
    ("held", "held answers"),
    ("file", "all records in the file"),
    ("marks", "marks of loss beside the file"),
];

/// A room that routes share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// Answers in memory.
    Memory,
    /// Baselines in memory.
    Baselines,
    /// Held answers.
    Held,
    /// Records in the file.
    File,
    /// Marks of loss.
    Marks,
}

impl Room {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Baselines => "baselines",
            Self::Held => "held",
            Self::File => "file",
            Self::Marks => "marks",
        }
    }
}

/// What a route takes of one room.
#[derive(Debug, Clone, Copy, Default)]
pub struct RoomUse {
    /// How many records.
    pub records: u64,
    /// About how many bytes.
    pub bytes: u64,
    /// How many bytes it may take before records of it leave.
    pub share: u64,
    /// How many of its records had to leave since the start.
    pub evicted: u64,
}

/// The rooms by route.
#[derive(Debug)]
pub struct RoomMetrics {
    records: IntGaugeVec,
    bytes: IntGaugeVec,
    share: IntGaugeVec,
    evicted: IntCounterVec,
    /// Held while a counter is read and increased.
    observing: Mutex<()>,
}

impl RoomMetrics {
    pub(super) fn new(registry: &mut MetricRegistry) -> Made<Self> {
        let rooms: Vec<String> = ROOMS.iter().map(|(room, holds)| format!("{room} ({holds})")).collect();
        let help = |text: &str| format!("{text} The room is one of: {}.", rooms.join("; "));
        let labels = &["route", "room"];
        Ok(Self {
            records: registry.gauges(
                "appset_gateway_room_records",
                &help("Records of the route in a room that routes share."),
                labels,
            )?,
            bytes: registry.gauges(
                "appset_gateway_room_bytes",
                &help("About what the records of the route take of a room that routes share, in bytes."),
                labels,
            )?,
            share: registry.gauges(
                "appset_gateway_room_share_bytes",
                &help("What the route may take of a room before its own records have to leave, in bytes."),
                labels,
            )?,
            evicted: registry.explained(
                "appset_gateway_room_evicted_total",
                "Records of the route for which there was no room any more.",
                labels,
                &ROOMS,
            )?,
            observing: Mutex::new(()),
        })
    }

    /// Notes what `route` takes of `room` now.
    pub fn set(&self, route: &str, room: Room, of: RoomUse) {
        let labels = &[route, room.as_str()];
        let as_gauge = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        self.records.with_label_values(labels).set(as_gauge(of.records));
        self.bytes.with_label_values(labels).set(as_gauge(of.bytes));
        self.share.with_label_values(labels).set(as_gauge(of.share));
        let _observing = self.observing.lock();
        let evicted = self.evicted.with_label_values(labels);
        evicted.inc_by(of.evicted.saturating_sub(evicted.get()));
    }

    /// Removes the gauges of `route`, which is no longer configured. Otherwise its last values would look current.
    pub fn forget(&self, route: &str) {
        for (room, _) in ROOMS {
            for gauges in [&self.records, &self.bytes, &self.share] {
                // Fails only if there is no such gauge.
                let _ = gauges.remove_label_values(&[route, room]);
            }
        }
    }
}
