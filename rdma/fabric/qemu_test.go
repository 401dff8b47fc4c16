package fabric

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// needTool fails without a program if CI is set, and otherwise skips the test.
func needTool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("%s is not installed", name)
	}
	t.Skipf("%s is not installed", name)
	return ""
}

// The wire format is QEMU's: network boot firmware asks for an address, gets an offer, and requests it only if it could
// read it.
func TestQEMUSpeaksTheWireFormat(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a machine: not with -short")
	}
	qemu := needTool(t, "qemu-system-x86_64")
	s := start(t, 2, nil)
	server := s.attach("p1")
	client := net.HardwareAddr{0x52, 0x54, 0, 0x12, 0x34, 0x56}

	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, qemu, "-nodefaults", "-no-user-config", "-display", "none", "-accel", "tcg", "-m",
		"64",
		"-netdev", "stream,id=n0,server=off,addr.type=unix,addr.path="+s.port("p0").Path,
		"-device", "e1000,netdev=n0,bootindex=1,mac="+client.String())
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	t.Cleanup(func() { cancel(); <-done }) // killed, so its exit status does not matter

	await := func(want layers.DHCPMsgType) *layers.DHCPv4 {
		t.Helper()
		for {
			f, err := server.receive()
			if err != nil {
				t.Fatalf("wait for DHCP %v: %v\nQEMU said: %s", want, err, &output)
			}
			p := gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.Default)
			d, ok := p.Layer(layers.LayerTypeDHCPv4).(*layers.DHCPv4)
			if ok && bytes.Equal(d.ClientHWAddr, client) && messageType(d) == want {
				return d
			}
		}
	}
	discover := await(layers.DHCPMsgTypeDiscover)
	if c := s.portCounters("p0"); !c.Connected || c.RxFrames == 0 || c.Addresses != 1 {
		t.Errorf("port of QEMU: %+v", c)
	}
	server.send(dhcpOffer(t, discover))
	request := await(layers.DHCPMsgTypeRequest)
	var asked net.IP
	for _, o := range request.Options {
		if o.Type == layers.DHCPOptRequestIP {
			asked = o.Data
		}
	}
	if want := net.IPv4(192, 0, 2, 7); !want.Equal(asked) {
		t.Errorf("the firmware requested %v, was offered %v", asked, want)
	}
	if c := s.portCounters("p0"); c.BadFrames != 0 || c.TxFrames == 0 {
		t.Errorf("port of QEMU: %+v", c)
	}
}

func messageType(d *layers.DHCPv4) layers.DHCPMsgType {
	for _, o := range d.Options {
		if o.Type == layers.DHCPOptMessageType && len(o.Data) == 1 {
			return layers.DHCPMsgType(o.Data[0])
		}
	}
	return layers.DHCPMsgTypeUnspecified
}

// dhcpOffer uses RFC 5737's addresses for examples.
func dhcpOffer(t *testing.T, discover *layers.DHCPv4) []byte {
	t.Helper()
	server, client := net.IP{192, 0, 2, 1}, net.IP{192, 0, 2, 7}
	eth := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: discover.ClientHWAddr,
		EthernetType: layers.EthernetTypeIPv4}
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: server, DstIP: net.IPv4bcast}
	udp := &layers.UDP{SrcPort: 67, DstPort: 68}
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	dhcp := &layers.DHCPv4{
		Operation: layers.DHCPOpReply, HardwareType: layers.LinkTypeEthernet, HardwareLen: 6,
		Xid: discover.Xid, Flags: discover.Flags, YourClientIP: client, NextServerIP: server,
		ClientHWAddr: discover.ClientHWAddr,
		Options: layers.DHCPOptions{
			layers.NewDHCPOption(layers.DHCPOptMessageType, []byte{byte(layers.DHCPMsgTypeOffer)}),
			layers.NewDHCPOption(layers.DHCPOptServerID, server),
			layers.NewDHCPOption(layers.DHCPOptSubnetMask, []byte{255, 255, 255, 0}),
			layers.NewDHCPOption(layers.DHCPOptLeaseTime, []byte{0, 0, 0x0e, 0x10}),
			layers.NewDHCPOption(layers.DHCPOptEnd, nil),
		},
	}
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opts, eth, ip, udp, dhcp); err != nil {
		t.Fatal(fmt.Errorf("build DHCP offer: %w", err))
	}
	return buf.Bytes()
}
