use super::*;

async fn sentence(task: impl Future<Output = anyhow::Result<()>> + Send + 'static) -> String {
    let mut supervisor = Supervisor::default();
    supervisor.start("binder", task);
    format!("{:#}", supervisor.next_end().await.into_error())
}

#[tokio::test]
async fn the_end_of_a_task_is_reported_with_its_name_and_error() {
    assert_eq!(sentence(async { Ok(()) }).await, "binder ended, and was to go on");
    assert_eq!(
        sentence(async { Err(anyhow!("no thread")) }).await,
        "binder failed: no thread"
    );
    assert_eq!(
        sentence(async { panic!("index {} of 3", 7) }).await,
        "binder failed: panicked: index 7 of 3"
    );
}

#[tokio::test]
async fn draining_names_the_tasks_that_do_not_end() {
    let mut supervisor = Supervisor::default();
    supervisor.start("quick", async { anyhow::Ok(()) });
    supervisor.start("slow", std::future::pending::<anyhow::Result<()>>());
    let late: Vec<&str> = supervisor
        .drain(Duration::from_millis(1))
        .await
        .iter()
        .map(|ended| ended.name)
        .collect();
    assert_eq!(late, ["slow"]);
}
