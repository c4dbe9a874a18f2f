use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;

use super::*;
use crate::devcluster::world::Clock;

/// What a world shares, with an API server that refuses to create nodes for this reason, and has a node that is not simulated.
fn refusing(reason: &'static str) -> Shared {
    let service = tower::service_fn(move |request: Request<Body>| async move {
        let (code, answer) = if request.method() == Method::POST {
            let status = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 409, "reason": reason, "message": "refused"});
            (409, status)
        } else {
            (
                200,
                json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}),
            )
        };
        let body = Body::from(answer.to_string().into_bytes());
        Response::builder().status(code).body(body)
    });
    Shared::new(Client::new(service, "default"), Clock::tokio())
}

#[tokio::test]
async fn only_a_node_of_the_same_name_makes_a_name_count_as_taken() {
    let spec = NodeSpec::cpu("n");
    let taken = register(&refusing("AlreadyExists"), &spec, 0)
        .await
        .expect_err("it is refused");
    assert!(is_taken(&taken));
    let text = taken.to_string();
    assert!(text.contains("a node n that is not simulated"), "{text}");

    let refused = register(&refusing("Conflict"), &spec, 0)
        .await
        .expect_err("it is refused");
    assert!(!is_taken(&refused));
}
