//! Places labels in a column without overlap.

/// Moves positions at least `gap` apart within `low..high`, in the same order, each as close to its wanted position
/// as possible. If they do not fit, the gap shrinks.
pub fn spread(wanted: &[f64], gap: f64, low: f64, high: f64) -> Vec<f64> {
    if wanted.is_empty() {
        return Vec::new();
    }
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    let gap = gap.min((high - low).max(0.0) / (wanted.len().max(2) - 1) as f64);
    // Labels that touch form a group, centred on the mean of their wanted positions.
    let mut groups: Vec<(f64, Vec<usize>)> = Vec::new();
    for at in order {
        groups.push((wanted[at], vec![at]));
        loop {
            let count = groups.len();
            let (centre, members) = &mut groups[count - 1];
            let half = (members.len() - 1) as f64 * gap / 2.0;
            *centre = centre.clamp(low + half, (high - half).max(low + half));
            let top = *centre - half;
            let Some((before, others)) = count.checked_sub(2).map(|at| &groups[at]) else { break };
            if before + (others.len() - 1) as f64 * gap / 2.0 + gap <= top + 1e-9 {
                break;
            }
            let (_, members) = groups.pop().expect("two groups were seen");
            let (centre, all) = groups.last_mut().expect("two groups were seen");
            all.extend(members);
            *centre = all.iter().map(|member| wanted[*member]).sum::<f64>() / all.len() as f64;
        }
    }
    let mut placed = vec![0.0; wanted.len()];
    for (centre, members) in groups {
        let first = centre - (members.len() - 1) as f64 * gap / 2.0;
        for (at, member) in members.into_iter().enumerate() {
            placed[member] = first + at as f64 * gap;
        }
    }
    placed
}
