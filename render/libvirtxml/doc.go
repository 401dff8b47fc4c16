// Package libvirtxml is the part of libvirt's domain XML that rackless writes, as Go types, and a
// printer that makes of them what a person would have written: one setting a line, elements without
// content closed in themselves, and the reason of a setting as a comment above it.
//
// The format is that of https://libvirt.org/formatdomain.html; the schema that judges it is
// libvirt's own domain.rng (virt-xml-validate). [Marshal] writes a value, [Unmarshal] reads back
// what libvirt makes of it (virsh dumpxml). What libvirt adds by itself and no type here knows is
// passed over.
//
// Most structs have a field Why: the reason for the setting, in words. It becomes the comment above
// the element. libvirt drops comments when it takes a file in, so Why is about the file alone.
package libvirtxml
