// Package nccl reads topologies of NCCL and RCCL: what NCCL_TOPO_DUMP_FILE writes, and the files
// for NCCL_TOPO_FILE that clouds provide for their machines.
//
// The form is NCCL's own view of a machine, as its source builds it from sysfs and NVML
// (src/graph/xml.cc, topo.cc and paths.cc):
//
//   - A cpu element is a NUMA node. It also stands for the host bridges of the node: devices under
//     one cpu that share no switch are PHB to each
//     other, and NCCL has no NODE. So all devices of a node get one root, "numa0".
//   - A pci element around others is a whole switch: NCCL leaves out root ports and the downstream
//     ports of switches. Its address is that of the
//     upstream port, or one that is made up ("ffff:ff:01.0"). Devices of one switch are PIX, those
//     of cascaded switches PXB.
//   - link_speed and link_width are the highest that device and port have in common. They are not
//     what the link runs at.
//   - A net is a network device that NCCL can use. Port 0 is a network interface used by sockets, a
//     higher one the port of an RDMA device.
//
// # What is left out
//
// Interfaces without a PCI function that are made by software (bridges, tunnels, the ends of
// containers) are no NICs of the machine. GUIDs are those of the system image, which the model has
// no place for, and they would identify the machine.
//
// NCCL lists only what the process that wrote the dump was given: GPUs that other processes used may be missing.
package nccl
