mod fuzz;

use super::{jobs, openb};

#[test]
fn openb_is_read_with_parts_of_gpus_and_models() {
    let nodes = openb::nodes("sn,cpu_milli,memory_mib,gpu,model\nn1,64000,262144,2,P100\nn2,96000,1024,0,\n");
    let nodes = nodes.expect("a table of nodes");
    assert_eq!(
        (nodes[0].gpus, nodes[0].memory, nodes[0].model.as_deref()),
        (2, 256 << 30, Some("P100"))
    );
    assert_eq!((nodes[1].gpus, nodes[1].model.as_deref()), (0, None));
    let pods = openb::pods(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n\
         p0,12000,16384,1,500,P100|T4,LS,Running,10,110,20\n\
         p1,1000,1024,8,1000,,BE,Succeeded,11,21,\n",
    );
    let pods = pods.expect("a table of pods");
    assert_eq!(
        (pods[0].shape.gpu, pods[0].runs, &*pods[0].queue),
        (500, Some(90_000), "ls")
    );
    assert_eq!(pods[0].shape.models, ["P100", "T4"]);
    assert_eq!(
        (pods[1].shape.gpu, pods[1].arrives, pods[1].runs),
        (8_000, 11_000, Some(10_000))
    );
}

#[test]
fn accounting_of_slurm_is_read_without_steps() {
    let jobs = jobs::read(
        "JobID|Account|Submit|Start|End|NNodes|AllocTRES\n\
         7|Vision|2024-01-01T00:00:10|2024-01-01T00:01:00|2024-01-01T01:01:00|2|cpu=16,mem=64G,node=2,gres/gpu=16\n\
         7.batch|Vision|2024-01-01T00:00:10|2024-01-01T00:01:00|2024-01-01T01:01:00|1|cpu=8\n\
         8|nlp|2024-01-01T00:00:00|Unknown|Unknown|1|cpu=1\n",
    );
    let jobs = jobs.expect("a table of jobs");
    assert_eq!(jobs.len(), 1);
    let job = &jobs[0];
    assert_eq!((job.pods, job.min, job.shape.gpu, job.shape.cpu), (2, 2, 8_000, 8_000));
    assert_eq!(
        (job.shape.memory, job.runs, &*job.queue),
        (32 << 30, Some(3_600_000), "vision")
    );
}

#[test]
fn tables_like_those_of_philly_and_helios_are_read() {
    let helios = jobs::read(
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,duration\n\
         a,u1,vc1,16,32,2,COMPLETED,2020-04-01 00:00:08,120\n\
         b,u2,vc2,1,4,1,CANCELLED,2020-04-01 00:01:08,0\n",
    );
    let helios = helios.expect("a table of jobs");
    assert_eq!(
        (
            helios.len(),
            helios[0].shape.gpu,
            helios[0].shape.cpu,
            helios[0].arrives
        ),
        (1, 8_000, 16_000, 0)
    );
    let philly = jobs::read("jobid,vc,submitted_time,num_gpus,run_time\nx,v,100,2,60\ny,v,160,0,30\n");
    let philly = philly.expect("a table of jobs");
    assert_eq!(
        (philly[1].arrives, philly[1].shape.gpu, philly[0].runs),
        (60_000, 0, Some(60_000))
    );
}

#[test]
fn errors_name_the_line() {
    let wrong = |text: &str| format!("{:#}", jobs::read(text).unwrap_err());
    assert_eq!(
        wrong("job_id,vc,submit_time,gpu_num,duration\na,v,soon,1,5\n"),
        "line 2: \"soon\" is not a time"
    );
    assert_eq!(
        wrong("vc,submit_time\nv,1\n"),
        "line 2: there is no column jobid or job_id or id or name or job_name"
    );
    assert_eq!(
        wrong("job_id,vc,submit_time,node_num,duration\na,v,0,1e30,5\n"),
        "line 2: 1000000000000000000000000000000 nodes are more than 1000000"
    );
    let nodes = openb::nodes("sn,cpu_milli,memory_mib,gpu\nn,-1,1,0\n").unwrap_err();
    assert_eq!(format!("{nodes:#}"), "line 2: \"-1\" is less than 0");
    let openb = openb::pods("name\np\n").unwrap_err();
    assert_eq!(format!("{openb:#}"), "line 2: there is no column creation_time");
}

#[test]
fn amounts_and_times_that_are_too_large_count_as_the_largest() {
    let nodes = openb::nodes("sn,cpu_milli,memory_mib,gpu\nn,1e300,1e300,1e300\n").expect("a table of nodes");
    assert_eq!(
        (nodes[0].cpu, nodes[0].memory, nodes[0].gpus),
        (i64::MAX, i64::MAX, i64::MAX)
    );
    let jobs = jobs::read("jobid,vc,submit,start,end,num_gpus\nx,v,-9e18,-9e18,9e18,1e300\ny,v,9e18,0,1,1\n");
    let jobs = jobs.expect("a table of jobs");
    assert_eq!(
        (jobs[0].arrives, jobs[0].runs, jobs[1].arrives),
        (0, Some(i64::MAX), i64::MAX)
    );
    assert!(jobs[0].shape.gpu > 9_000_000_000_000_000_000);
}
