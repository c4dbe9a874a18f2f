//! Messages written byte by byte, and bytes that are no messages.

use proptest::prelude::*;

use super::*;

/// A field of bytes, shorter than 128.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2, u8::try_from(content.len()).unwrap()];
    bytes.extend_from_slice(content);
    bytes
}

fn object(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let type_meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [MAGIC.to_vec(), field(1, &type_meta), field(2, raw)].concat()
}

#[test]
fn a_namespace_as_kubectl_sends_it() {
    // Go writes the empty fields of metadata, spec and status, too.
    let metadata = [
        field(1, b"team"),
        field(2, b""),
        field(8, b""),
        field(11, &[field(1, b"a"), field(2, b"b")].concat()),
    ]
    .concat();
    let raw = [field(1, &metadata), field(2, b""), field(3, &field(1, b""))].concat();
    let decoded = decode(&object("v1", "Namespace", &raw)).unwrap();
    assert_eq!(
        decoded,
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team", "labels": {"a": "b"}}})
    );
}

#[test]
fn types_with_a_json_form_of_their_own() {
    let quantity = field(1, b"500m");
    let limits = field(1, &[field(1, b"cpu"), field(2, &quantity)].concat());
    let port = [vec![1 << 3, 0, 2 << 3, 80], field(3, b"")].concat();
    let probe = field(1, &field(2, &field(2, &port)));
    let container = [field(1, b"c"), field(8, &limits), field(10, &probe)].concat();
    let spec = [field(2, &container), vec![4 << 3, 0]].concat();
    let raw = field(2, &spec);
    let decoded = decode(&object("v1", "Pod", &raw)).unwrap();
    assert_eq!(
        decoded["spec"],
        json!({
            "containers": [{"name": "c", "resources": {"limits": {"cpu": "500m"}}, "livenessProbe": {"httpGet": {"port": 80}}}],
            // A pointer to zero was meant.
            "terminationGracePeriodSeconds": 0,
        })
    );
    let secret = field(2, &[field(1, b"key"), field(2, b"value")].concat());
    assert_eq!(
        decode(&object("v1", "Secret", &secret)).unwrap()["data"],
        json!({"key": "dmFsdWU="})
    );
    let time = [vec![1 << 3, 10], vec![2 << 3, 0]].concat();
    let lease = field(2, &field(4, &time));
    let decoded = decode(&object("coordination.k8s.io/v1", "Lease", &lease)).unwrap();
    assert_eq!(decoded["spec"], json!({"renewTime": "1970-01-01T00:00:10.000000Z"}));
}

#[test]
fn what_is_not_known_is_refused() {
    let unknown = |error: &str| Err(ProtobufError::Unknown(error.to_owned()));
    assert_eq!(decode(&object("v1", "Widget", b"")), unknown("Widget"));
    assert_eq!(
        decode(&object("v1", "Namespace", &field(9, b"x"))),
        unknown("field 9 of Namespace")
    );
    assert_eq!(decode(b"{}"), Err(ProtobufError::Malformed("no k8s prefix")));
    assert_eq!(decode(b"k8s\0\x0a\xff"), Err(ProtobufError::Malformed("length")));
}

#[test]
fn every_message_that_a_message_names_is_there() {
    let special = [
        "s",
        "b",
        "i",
        "d",
        "y",
        "Quantity",
        "RawExtension",
        "Items",
        "Duration",
        "Time",
        "MicroTime",
        "IntOrString",
    ];
    for (name, fields) in messages() {
        for field in fields.values() {
            let (Shape::One(shape) | Shape::List(shape) | Shape::Map(shape)) = field.shape;
            assert!(
                special.contains(&shape) || messages().contains_key(shape),
                "{name}.{}: {shape}",
                field.name
            );
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for kind in ["Pod", "Lease", "SelfSubjectAccessReview"] {
            let _either = message(kind, &bytes);
        }
        let _either = decode(&[MAGIC, &bytes].concat());
    }
}
