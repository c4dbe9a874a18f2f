use super::*;

async fn sentence(task: impl Future<Output = anyhow::Result<()>> + Send + 'static) -> String {
    let mut supervisor = Supervisor::default();
    supervisor.start("binder", task);
    format!("{:#}", supervisor.next_end().await.into_error())
}

#[tokio::test]
async fn a_task_that_ends_says_which_it_is_and_why() {
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
async fn draining_names_who_is_late() {
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
