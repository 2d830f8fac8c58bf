use record::machine::{cgroup_mount_in, cpu_list, cpus_of_list};

#[test]
fn the_unified_hierarchy_is_found_among_the_old_ones() {
    let text = "25 24 0:22 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
                34 24 0:31 / /sys/fs/cgroup/unified rw,relatime shared:1 - cgroup2 cgroup2 rw\n";
    let of = |controller| cgroup_mount_in(text, controller).and_then(|path| Some(path.to_str()?.to_string()));
    assert_eq!(of(None).as_deref(), Some("/sys/fs/cgroup/unified"));
    assert_eq!(of(Some("cpu")).as_deref(), Some("/sys/fs/cgroup/cpu"));
    assert_eq!((of(Some("cp")), cgroup_mount_in("nonsense\n - cgroup2\n", None)), (None, None));
}

#[test]
fn a_cpu_list_is_read_as_the_kernel_writes_it() {
    assert_eq!(cpus_of_list("0-1,4"), vec![0, 1, 4]);
    assert!(cpus_of_list("").is_empty());
    assert!(cpus_of_list("x-y").is_empty());
    assert_eq!(cpu_list(&[0, 1, 2, 3, 8, 10, 11]), "0-3,8,10-11");
    for cpus in [vec![], vec![7], (0..300).collect(), (0..300).step_by(2).collect::<Vec<_>>()] {
        assert_eq!(cpus_of_list(&cpu_list(&cpus)), cpus);
    }
}
