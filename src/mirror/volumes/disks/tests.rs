use serde::de::DeserializeOwned;

use super::*;
use crate::mirror::{Mirror, PackedChange, PackedObject, Settings};

fn read<K: DeserializeOwned>(yaml: &str) -> K {
    serde_yaml_ng::from_str(yaml).unwrap_or_else(|error| panic!("{yaml}: {error}"))
}

/// What a pod with these volumes names, `+` behind what it shares with readers.
fn named(volumes: &str) -> String {
    let disks = named_by(&read(&format!("{{containers: [], volumes: [{volumes}]}}")));
    let show = |disk: &Disk| format!("{}{}", disk.name, if disk.shared { "+" } else { "" });
    disks.iter().map(show).collect::<Vec<_>>().join(", ")
}

#[test]
fn disks_that_pods_name() {
    for (volumes, wanted) in [
        ("{name: a, emptyDir: {}}", ""),
        ("{name: a, gcePersistentDisk: {pdName: d}}", "gce d"),
        ("{name: a, gcePersistentDisk: {pdName: d, readOnly: true}}", "gce d+"),
        (
            "{name: a, awsElasticBlockStore: {volumeID: v, readOnly: true}}",
            "ebs v",
        ),
        (
            "{name: a, iscsi: {targetPortal: p, iqn: q, lun: 0, readOnly: true}}",
            "iscsi q+",
        ),
        (
            "{name: a, rbd: {monitors: [m, n], pool: p, image: i}}",
            "rbd m p i, rbd n p i",
        ),
        (
            "{name: a, rbd: {monitors: [m], image: i, readOnly: true}}",
            "rbd m rbd i+",
        ),
        (
            "{name: a, gcePersistentDisk: {pdName: d, readOnly: true}}, {name: b, gcePersistentDisk: {pdName: d}}",
            "gce d",
        ),
        (
            "{name: a, gcePersistentDisk: {pdName: d}}, {name: b, gcePersistentDisk: {pdName: e}}",
            "gce d, gce e",
        ),
    ] {
        assert_eq!(named(volumes), wanted, "{volumes}");
    }
}

#[test]
fn in_tree_volumes_count_for_the_csi_drivers_that_replace_them() {
    for (source, wanted) in [
        ("csi: {driver: d, volumeHandle: h}", Some("d h")),
        (
            "awsElasticBlockStore: {volumeID: 'aws://zone/vol-1'}",
            Some("ebs.csi.aws.com vol-1"),
        ),
        ("awsElasticBlockStore: {volumeID: vol-1}", Some("ebs.csi.aws.com vol-1")),
        (
            "azureDisk: {diskName: d, diskURI: /uri}",
            Some("disk.csi.azure.com /uri"),
        ),
        ("cinder: {volumeID: v}", Some("cinder.csi.openstack.org v")),
        ("gcePersistentDisk: {pdName: d}", Some("pd.csi.storage.gke.io d")),
        ("portworxVolume: {volumeID: v}", Some("pxd.portworx.com v")),
        ("vsphereVolume: {volumePath: p}", Some("csi.vsphere.vmware.com p")),
        ("nfs: {server: s, path: /p}", None),
    ] {
        let volume = read(&format!("{{metadata: {{name: v}}, spec: {{{source}}}}}"));
        let found = handle(&volume).map(|(driver, volume)| format!("{driver} {volume}"));
        assert_eq!(found.as_deref(), wanted, "{source}");
    }
    assert_eq!(driver("kubernetes.io/aws-ebs"), "ebs.csi.aws.com");
    assert_eq!(driver("example.com/any"), "example.com/any");
}

#[test]
fn attachments_are_told_once_their_volume_is_known() {
    let mut mirror = Mirror::new(Settings::default());
    let mut see = |change: fn(PackedObject) -> PackedChange, object: PackedObject| -> String {
        let output = mirror.apply(&change(object));
        let show = |event: &Event| match event {
            Event::Attachment(input) => format!("{}: {} {}", input.key, input.node, input.volume.1),
            Event::AttachmentGone(key) => format!("{key} gone"),
            other => panic!("{other:?}"),
        };
        output.events.iter().map(show).collect::<Vec<_>>().join(", ")
    };
    let attachment = || {
        let text = "{metadata: {name: a}, spec: {attacher: csi, nodeName: n, source: {persistentVolumeName: v}}}";
        PackedObject::VolumeAttachment(Arc::new(read(text)))
    };
    let volume = |handle: &str| {
        let text = format!(
            "{{metadata: {{name: v}}, spec: {{csi: {{driver: csi, volumeHandle: {handle}}}}}, status: {{phase: Bound}}}}"
        );
        PackedObject::PersistentVolume(Arc::new(read(&text)))
    };
    assert_eq!(see(PackedChange::Applied, attachment()), "");
    assert_eq!(see(PackedChange::Applied, volume("h")), "a: n h");
    assert_eq!(see(PackedChange::Applied, attachment()), "", "nothing new");
    assert_eq!(see(PackedChange::Applied, volume("i")), "a: n i");
    assert_eq!(see(PackedChange::Deleted, volume("i")), "a gone");
    assert_eq!(see(PackedChange::Applied, volume("h")), "a: n h");
    assert_eq!(see(PackedChange::Deleted, attachment()), "a gone");
    assert_eq!(see(PackedChange::Applied, volume("i")), "");
}
