use crate::error::{NoRoom, Result, unusable};
use crate::options::WorkerOptions;
use crate::protocol::{ColdHeld, FromWorker, HostPlace, PlanMessage, line};
use load::cold::{ColdPool, ColdRoom, ESTABLISH_TIMEOUT, room};
use record::LoadPlan;
use record::lock;
use record::units::{format_bytes, grouped};
use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Kernel memory of one end of a cold connection, estimated high (docs/fleet.md).
const BYTES_PER_CONNECTION: u64 = 5_000;
/// This fraction (1/N) of the available memory is left to other programs.
const MEMORY_LEFT: u64 = 10;
const REPORT: Duration = Duration::from_millis(200);

#[derive(Debug, Clone)]
pub struct Node {
    pub name: String,
    /// The machine and its network namespace; empty if unknown.
    pub place: HostPlace,
    pub room: ColdRoom,
    /// Number of its hot connections during the load.
    pub hot: u64,
}

pub struct NodeLimits {
    ports: u64,
    descriptors: u64,
    memory: u64,
}

impl NodeLimits {
    /// The limits of each node. Nodes in one network namespace share its ports; nodes on one machine share its
    /// memory. If the server is on that machine, both ends of a connection use memory.
    pub fn per_node(nodes: &[Node], is_local: bool) -> Vec<NodeLimits> {
        let (mut networks, mut machines) = (HashMap::new(), HashMap::new());
        for node in nodes {
            *networks.entry(&node.place.network).or_insert(0u64) += 1;
            *machines.entry(&node.place.machine).or_insert(0u64) += 1;
        }
        let bytes = if is_local { 2 * BYTES_PER_CONNECTION } else { BYTES_PER_CONNECTION };
        let limits = |node: &Node| {
            let room = &node.room;
            let memory_bytes = room.memory_bytes - room.memory_bytes / MEMORY_LEFT;
            NodeLimits {
                ports: room.ports.saturating_mul(room.addresses) / networks[&node.place.network],
                descriptors: room.descriptors,
                memory: memory_bytes / machines[&node.place.machine] / bytes,
            }
        };
        nodes.iter().map(limits).collect()
    }

    pub fn least(&self) -> (u64, &'static str) {
        let all = [(self.ports, "ports"), (self.descriptors, "descriptors"), (self.memory, "memory")];
        all.into_iter().min_by_key(|(count, _)| *count).expect("there are three")
    }
}

/// Divides cold connections as evenly as the limits allow. `is_local` says that the server is on the same machine.
pub fn divide(count: u64, nodes: &[Node], is_local: bool) -> std::result::Result<Vec<u64>, NoRoom> {
    let limits = NodeLimits::per_node(nodes, is_local);
    let rooms: Vec<u64> =
        limits.iter().zip(nodes).map(|(limits, node)| limits.least().0.saturating_sub(node.hot)).collect();
    let mut parts = vec![0; nodes.len()];
    let mut left = count;
    // Fills the smallest node first; the other nodes share the connections that it cannot hold.
    let mut order: Vec<usize> = (0..nodes.len()).collect();
    order.sort_by_key(|place| rooms[*place]);
    for (taken, place) in order.iter().enumerate() {
        parts[*place] = rooms[*place].min(left.div_ceil((nodes.len() - taken) as u64));
        left -= parts[*place];
    }
    if left == 0 { Ok(parts) } else { Err(no_room(count, left, nodes, &limits, &rooms)) }
}

fn count_words(count: u64) -> String {
    grouped(count as f64)
}

fn no_room(count: u64, lacking: u64, nodes: &[Node], limits: &[NodeLimits], rooms: &[u64]) -> NoRoom {
    let mut rows = vec![["client", "ports", "descriptors", "memory", "hot", "room", "ends first"].map(String::from)];
    for ((node, limits), room) in nodes.iter().zip(limits).zip(rooms) {
        rows.push([
            node.name.clone(),
            format!("{} x {}", count_words(node.room.ports), count_words(node.room.addresses)),
            count_words(limits.descriptors),
            format!("{} in {}", count_words(limits.memory), format_bytes(node.room.memory_bytes as f64)),
            count_words(node.hot),
            count_words(*room),
            limits.least().1.into(),
        ]);
    }
    let sum = rooms.iter().fold(0, |sum: u64, room| sum.saturating_add(*room));
    let last = ["all", "", "", "", "", &count_words(sum), &format!("{} lacking", count_words(lacking))];
    rows.push(last.map(String::from));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..7).map(width).collect();
    let text = |row: &[String; 7]| -> String {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        cells.join("  ").trim_end().to_string()
    };
    NoRoom {
        table: rows.iter().map(text).collect(),
        why: format!(
            "{} cold connections are too many for {} clients by {}: add ports with more source addresses \
             (--source-interface) or a wider net.ipv4.ip_local_port_range, descriptors with ulimit -n, or more \
             clients",
            count_words(count),
            nodes.len(),
            count_words(lacking)
        ),
    }
}

pub(crate) struct Cold {
    plan: Option<LoadPlan>,
    pool: Option<Arc<Mutex<ColdPool>>>,
    out: SyncSender<String>,
}

impl Cold {
    pub(crate) fn new(out: SyncSender<String>) -> Self {
        Cold { plan: None, pool: None, out }
    }

    /// [`hold`](Self::hold) uses the plan of the last call.
    pub(crate) fn room_for(&mut self, message: PlanMessage, options: &WorkerOptions) -> Result<ColdRoom> {
        let mut plan = message.into_plan();
        options.complete(&mut plan)?;
        let room = room(&plan)?;
        self.plan = Some(plan);
        Ok(room)
    }

    /// Opens or closes connections until `count` are established or `stop` is set, and reports the counts from then on.
    pub(crate) fn hold(&mut self, count: u64, most: u64, stop: &AtomicBool) -> Result<()> {
        let plan = self.plan.as_mut().ok_or_else(|| unusable("the driver did not request their limits first"))?;
        plan.addresses = vec![load::choose_address(plan, stop)];
        let pool = match &self.pool {
            Some(pool) => pool.clone(),
            None => {
                let pool = Arc::new(Mutex::new(ColdPool::begin(plan, most.max(count))?));
                self.report(&pool);
                self.pool.insert(pool).clone()
            }
        };
        let mut pool = lock(&pool);
        let out = self.out.clone();
        pool.resize(count, ESTABLISH_TIMEOUT, stop, |established| {
            let counts = load::cold::ColdCounts { established, ..Default::default() };
            let _ = out.try_send(line(&FromWorker::Cold(ColdHeld { counts, kernel_bytes: None })));
        })?;
        Ok(())
    }

    fn report(&self, pool: &Arc<Mutex<ColdPool>>) {
        let (pool, out) = (Arc::downgrade(pool), self.out.clone());
        std::thread::spawn(move || {
            while let Some(pool) = pool.upgrade() {
                if let Ok(pool) = pool.try_lock() {
                    let held = ColdHeld { counts: pool.counts(), kernel_bytes: pool.kernel_bytes_per_connection() };
                    let _ = out.try_send(line(&FromWorker::Cold(held)));
                }
                drop(pool);
                std::thread::sleep(REPORT);
            }
        });
    }
}
