// Package nccl reads topologies of NCCL and RCCL: the output of NCCL_TOPO_DUMP_FILE, and clouds' files for
// NCCL_TOPO_FILE.
//
// The format is NCCL's own view of a machine (src/graph/xml.cc, topo.cc and paths.cc):
//
//   - A cpu element is a NUMA node and its host bridges: devices under one cpu that share no switch
//     are PHB to each other. So all devices of a node get one root, "numa0".
//   - A pci element around others is a whole switch. Its address is that of the upstream port, or
//     an artificial one ("ffff:ff:01.0"). Devices of one switch are PIX, of cascaded switches PXB.
//   - link_speed and link_width are the highest that both device and port support.
//   - A net is a network device that NCCL can use. Port 0 is a network interface used by sockets, a
//     higher one the port of an RDMA device.
//
// Software interfaces without a PCI function do not count as NICs. GUIDs are dropped, because they would identify the
// machine. A dump lists only the devices that NCCL's process could use.
package nccl
