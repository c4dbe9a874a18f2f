//! Disks: in-line disks of pod specs that cannot be shared freely, in-tree plugins migrated to CSI, and VolumeAttachments.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PodSpec, Volume};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::ResourceExt;

use super::{Volumes, put};
use crate::engine::input::{AttachmentInput, Disk, Event, Name, Table};
use crate::mirror::links::Links;
use crate::mirror::{Output, name};

/// CSI drivers of migrated in-tree plugins, by provisioner name.
const TAKEN_OVER: [(&str, &str); 6] = [
    ("kubernetes.io/aws-ebs", EBS),
    ("kubernetes.io/azure-disk", AZURE),
    ("kubernetes.io/cinder", CINDER),
    ("kubernetes.io/gce-pd", GCE),
    ("kubernetes.io/portworx-volume", PORTWORX),
    ("kubernetes.io/vsphere-volume", VSPHERE),
];
const EBS: &str = "ebs.csi.aws.com";
const AZURE: &str = "disk.csi.azure.com";
const CINDER: &str = "cinder.csi.openstack.org";
const GCE: &str = "pd.csi.storage.gke.io";
const PORTWORX: &str = "pxd.portworx.com";
const VSPHERE: &str = "csi.vsphere.vmware.com";

/// The driver of a provisioner.
pub fn driver(provisioner: &str) -> &str {
    let known = TAKEN_OVER.iter().find(|(old, _)| *old == provisioner);
    known.map_or(provisioner, |(_, driver)| driver)
}

/// The driver of a volume, and its handle, which counts once on a node.
pub fn handle(volume: &PersistentVolume) -> Option<(Name, Name)> {
    let spec = volume.spec.as_ref()?;
    let (driver, handle) = if let Some(csi) = &spec.csi {
        (csi.driver.as_str(), csi.volume_handle.as_str())
    } else if let Some(disk) = &spec.aws_elastic_block_store {
        let id = &disk.volume_id;
        (EBS, id.rsplit('/').next().unwrap_or(id))
    } else if let Some(disk) = &spec.azure_disk {
        (AZURE, disk.disk_uri.as_str())
    } else if let Some(disk) = &spec.cinder {
        (CINDER, disk.volume_id.as_str())
    } else if let Some(disk) = &spec.gce_persistent_disk {
        (GCE, disk.pd_name.as_str())
    } else if let Some(disk) = &spec.portworx_volume {
        (PORTWORX, disk.volume_id.as_str())
    } else {
        (VSPHERE, spec.vsphere_volume.as_ref()?.volume_path.as_str())
    };
    Some((name(driver), name(handle)))
}

/// Disks that the pods of one node cannot share freely.
pub fn named_by(spec: &PodSpec) -> Vec<Disk> {
    let mut disks: Vec<Disk> = spec.volumes.iter().flatten().flat_map(of_volume).collect();
    // A disk named twice is shared if every mention is read-only.
    disks.sort();
    disks.dedup_by(|next, first| next.name == first.name);
    disks
}

fn of_volume(volume: &Volume) -> Vec<Disk> {
    let disk = |text: String, read_only: Option<bool>| Disk {
        name: text.into(),
        shared: read_only == Some(true),
    };
    if let Some(gce) = &volume.gce_persistent_disk {
        vec![disk(format!("gce {}", gce.pd_name), gce.read_only)]
    } else if let Some(ebs) = &volume.aws_elastic_block_store {
        vec![disk(format!("ebs {}", ebs.volume_id), None)]
    } else if let Some(iscsi) = &volume.iscsi {
        vec![disk(format!("iscsi {}", iscsi.iqn), iscsi.read_only)]
    } else if let Some(rbd) = &volume.rbd {
        // Images are the same if the clusters have a monitor in common.
        let (pool, image) = (rbd.pool.as_deref().unwrap_or("rbd"), &rbd.image);
        let monitors: BTreeSet<&String> = rbd.monitors.iter().collect();
        let of = |monitor| disk(format!("rbd {monitor} {pool} {image}"), rbd.read_only);
        monitors.into_iter().map(of).collect()
    } else {
        Vec::new()
    }
}

/// Volumes that are attached to nodes.
#[derive(Default)]
pub struct Attachments {
    all: Table<Box<str>, Arc<VolumeAttachment>>,
    /// Attachments by the volume that they name.
    of_volume: Links,
    sent: Table<Box<str>, AttachmentInput>,
}

fn volume_of(attachment: &VolumeAttachment) -> Option<&str> {
    attachment.spec.source.persistent_volume_name.as_deref()
}

impl Volumes {
    /// An attachment was created or changed (`there`), or deleted.
    pub(super) fn attachment_changed(&mut self, attachment: &Arc<VolumeAttachment>, there: bool, out: &mut Output) {
        let key: Box<str> = attachment.name_any().into();
        if let Some(volume) = volume_of(attachment) {
            if there {
                self.attachments.of_volume.add(volume, &key);
            } else {
                self.attachments.of_volume.remove(volume, &key);
            }
        }
        put(&mut self.attachments.all, &key, attachment, there);
        self.tell_attachment(&key, out);
    }

    /// A volume was created, changed or deleted: updates its attachments.
    pub(super) fn tell_attachments_of(&mut self, volume: &str, out: &mut Output) {
        let keys: Vec<_> = self.attachments.of_volume.to(volume).cloned().collect();
        for key in keys {
            self.tell_attachment(&key, out);
        }
    }

    fn tell_attachment(&mut self, key: &str, out: &mut Output) {
        let read = self.attachments.all.get(key).and_then(|attachment| {
            let volume = handle(self.volumes.get(volume_of(attachment)?)?)?;
            Some(AttachmentInput {
                key: name(key),
                node: name(&attachment.spec.node_name),
                volume,
            })
        });
        if self.attachments.sent.get(key) == read.as_ref() {
            return;
        }
        match read {
            Some(read) => {
                self.attachments.sent.insert(key.into(), read.clone());
                out.events.push(Event::Attachment(Box::new(read)));
            }
            None => {
                self.attachments.sent.remove(key);
                out.events.push(Event::AttachmentGone(name(key)));
            }
        }
    }
}

#[cfg(test)]
mod tests;
