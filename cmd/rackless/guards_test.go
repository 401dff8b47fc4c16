package main

import (
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/internal/storey"
)

const aloneInItsGroup = `cd /sys/bus/pci
[ ! -e drivers/shpchp/0000:02:00.0 ] || echo 0000:02:00.0 >drivers/shpchp/unbind
[ ! -e devices/0000:03:01.0 ] || echo 1 >devices/0000:03:01.0/remove`

func TestGuardsRefuseAndNothingIsChanged(t *testing.T) {
	t.Parallel()
	needEmulation(t)
	guardsRefuse(t, storey.Some(storey.Rand(t), guardRounds(), guardRoundsDrawn))
}

func TestE2EGuardsRefuseAndNothingIsChanged(t *testing.T) {
	storey.E2E(t)
	t.Parallel()
	guardsRefuse(t, guardRounds())
}

const guardRoundsDrawn = 3

// guardsRefuse makes a plan dangerous after it was made, in an emulated host, and prepares it: everything stays as it
// is. Guards for things that this host lacks (a disk on a card of its own, mounted, with swap, or as the root; a
// console on the GPU) are tested in host/device, on a real kernel too: no plan would ask for them.
func guardsRefuse(t *testing.T, rounds [][]guardCase) {
	h := newSmall(t, "guards", smallProfile)
	h.isAsItsImage(t)
	h.putFile(t, "/root/lab.yaml", "testdata/faults/guards.yaml")
	h.putFile(t, "/root/pages.yaml", "testdata/faults/guards-pages.yaml")
	h.refuses(t, "rackless prepare pages.yaml --yes",
		"hugepages would take 1640 MiB of them; with 2 virtual machines 384 MiB have to be left: give the lab nodes "+
			"less memory")
	h.refuses(t, "rackless prepare pages.yaml --check", " refused ", "384 MiB have to be left",
		"prepare would refuse, and change nothing; ")
	h.putFile(t, "/root/cpus.yaml", "testdata/faults/guards-cpus.yaml")
	h.refuses(t, "rackless prepare cpus.yaml --yes",
		"CPU 0 would go to a lab node, and the kernel needs it: plan again with a core of its NUMA node for the host")

	// This NIC can be given away: its bridge has no driver and its neighbour is removed.
	h.mustHost(t, aloneInItsGroup)
	// This keeps the plan without preparing the host.
	if out, status := h.host(t, "RACKLESS_FAULT=kill:1:begun rackless prepare lab.yaml --yes"); status != exitKilled {
		t.Fatalf("status %d\n%s", status, out)
	}
	for _, round := range rounds {
		t.Run(fmt.Sprintf("%s, and %d more", round[0].name, len(round)-1), func(t *testing.T) {
			command, want := "rackless prepare --yes", []string(nil)
			var do, undo []string
			for _, c := range round {
				do, undo = append(do, c.do), append(undo, c.undo)
				command = c.env + command
				want = append(want, c.want...)
			}
			slices.Reverse(undo)
			h.each(t, do)
			h.refuses(t, command, want...)
			h.each(t, undo)
		})
	}
	// Nothing of the rounds blocks prepare. With Debian's driverctl installed, it lists the devices given away.
	h.installDriverctl(t)
	if out, status := h.host(t, "rackless prepare --yes"); status != exitReboot {
		t.Errorf("prepare at last: status %d\n%s", status, out)
	}
	// GRUB's scripts put them into all entries, also for recovery.
	if entries := h.mustHost(t, "grep -c isolcpus= /boot/grub/grub.cfg"); entries != "3\n" {
		t.Errorf("%s entries of GRUB have the arguments", entries)
	}
	// list-overrides shows the current state; the files apply at boot.
	const overrides = "driverctl list-overrides; grep -s '' /etc/driverctl.d/*; true"
	out := h.mustHost(t, overrides)
	for _, want := range []string{"0000:06:00.0 vfio-pci", "0000:21:00.0 vfio-pci",
		"/etc/driverctl.d/pci-0000:06:00.0:vfio-pci", "/etc/driverctl.d/pci-0000:21:00.0:vfio-pci"} {
		if !strings.Contains(out, want) {
			t.Errorf("driverctl's overrides after prepare lack %s: %q", want, out)
		}
	}
	// Nothing is changed until the journal is back.
	h.mustHost(t, "mv /var/lib/rackless/host/journal /root/journal")
	for _, command := range []string{cutRollback, "rackless prepare --yes"} {
		if out, status := h.host(t, command); status != exitFailed || !strings.Contains(out, "are missing or damaged") {
			t.Errorf("%s without its journal: status %d\n%s", command, status, out)
		}
	}
	h.mustHost(t, "mv /root/journal /var/lib/rackless/host/journal")
	h.mustHost(t, cutRollback)
	if out := h.mustHost(t, overrides); strings.Contains(out, "vfio-pci") {
		t.Errorf("driverctl's overrides after rollback: %q", out)
	}
}

// A guardCase makes a plan dangerous, and undoes that.
type guardCase struct {
	name     string
	do, undo string
	env      string   // environment of prepare
	want     []string // expected words of the refusal
}

// guardRounds groups cases, because a refusal takes an emulated host seconds and prepare lists all reasons. They use
// enp33s0, which goes to a lab node, or enp65s0, the port with virtual functions; a cable connects both. A case has its
// own round if it hides other reasons or removes a NIC they need.
func guardRounds() [][]guardCase {
	// A NIC leaves some time after its namespace has ended.
	back := func(netdev string) string {
		return "\nfor i in $(seq 60); do [ ! -e /sys/class/net/" + netdev +
			" ] || break; sleep 0.5; done; udevadm settle; [ -e " +
			"/sys/class/net/" + netdev + " ]"
	}
	const busy = "0000:21:00.0 is in use by the host: "
	return [][]guardCase{
		{
			{
				name: "a bridge in the IOMMU group",
				do:   "echo 0000:02:00.0 >/sys/bus/pci/drivers/shpchp/bind",
				undo: aloneInItsGroup,
				want: []string{"of 0000:03:02.0 also has bridge 0000:02:00.0, which driver shpchp uses: the kernel " +
					"does not give such a group away"},
			},
			{
				name: "a container's macvlan",
				do:   "ip netns add box; ip link add link enp33s0 name inner0 netns box type macvlan",
				undo: "ip netns del box; sleep 1",
				want: []string{busy + "macvlan inner0 in the network namespace of box stands on enp33s0"},
			},
			{
				name: "the default route",
				do: "ip addr add 192.0.2.2/24 dev enp33s0; ip link set enp33s0 up; ip route add default via " +
					"192.0.2.1 dev enp33s0",
				undo: "ip addr flush dev enp33s0; ip link set enp33s0 down",
				want: []string{"0000:21:00.0 carries the default route (enp33s0, ipv4)",
					"enp33s0 has address 192.0.2.2"},
			},
			{
				name: "a name server",
				do: "ip addr add 198.18.0.2/24 dev enp33s0; mkdir -p /run/systemd/resolve; echo " +
					"nameserver 198.18.0.53 >/run/systemd/resolve/resolv.conf",
				undo: "rm /run/systemd/resolve/resolv.conf",
				want: []string{"0000:21:00.0 carries the name server 198.18.0.53 (through enp33s0): the host would " +
					"lose DNS"},
			},
			{
				name: "a VLAN with an address",
				do: "ip link add link enp33s0 name lan7 type vlan id 7; ip addr add 198.51.100.2/24 dev lan7; " +
					"ip link set lan7 up",
				undo: "ip link del lan7",
				want: []string{"vlan lan7 stands on enp33s0", "lan7 has address 198.51.100.2"},
			},
			{
				name: "macvtap of a guest",
				do:   "ip link add link enp33s0 name guest0 type macvtap mode bridge",
				undo: "ip link del guest0",
				want: []string{"guest0 stands on enp33s0"},
			},
			{
				name: "a clock that a process has open",
				do: "systemd-run --quiet --unit=clock sh -c 'exec sleep 1000 </dev/'$(ls " +
					"/sys/bus/pci/devices/0000:21:00.0/ptp); sleep 1",
				undo: "systemctl stop clock",
				want: []string{"0000:21:00.0 is in use: sleep ("},
			},
			{
				name: "a GPU with a process",
				do: "systemd-run --quiet --unit=viewer sh -c 'exec sleep 1000 " +
					"</dev/dri/by-path/pci-0000:06:00.0-card'; sleep 1",
				undo: "systemctl stop viewer",
				want: []string{"0000:06:00.0 is in use: sleep ("},
			},
			{
				name: "a virtual function in use",
				do: "echo 1 >/sys/bus/pci/devices/0000:41:00.0/sriov_numvfs; udevadm settle; ip addr add " +
					"203.0.113.5/24 dev enp65s0v0",
				undo: "echo 0 >/sys/bus/pci/devices/0000:41:00.0/sriov_numvfs",
				want: []string{"virtual function 0 of 0000:41:00.0: 0000:41:10.0 is in use: enp65s0v0 has address " +
					"203.0.113.5"},
			},
		},
		{
			{
				name: "the path of the ssh session",
				do:   "ip addr add 192.0.2.2/24 dev enp33s0; ip link set enp33s0 up",
				undo: "ip addr flush dev enp33s0; ip link set enp33s0 down",
				env:  `SSH_CONNECTION="192.0.2.9 50000 192.0.2.2 22" `,
				want: []string{"0000:21:00.0 carries the ssh session from 192.0.2.9 (through enp33s0)"},
			},
			{
				name: "ipvlan",
				do:   "ip link add link enp33s0 name part0 type ipvlan",
				undo: "ip link del part0",
				want: []string{busy + "enp33s0 has address 192.0.2.2", "part0 stands on enp33s0"},
			},
			{
				name: "an address of the port of virtual functions",
				do:   "ip addr add 198.51.100.9/24 dev enp65s0",
				undo: "ip addr flush dev enp65s0",
				want: []string{"0000:41:00.0 is in use by the host: enp65s0 has address 198.51.100.9",
					"0000:41:00.0 would be down for a moment"},
			},
		},
		{
			{
				name: "a bridge with an address",
				do: "ip link add bridge9 type bridge; ip link set enp33s0 master bridge9; ip addr add " +
					"198.51.100.2/24 dev bridge9",
				undo: "ip link set enp33s0 nomaster; ip link del bridge9",
				want: []string{"enp33s0 belongs to bridge9, bridge9 has address 198.51.100.2"},
			},
			{
				name: "an IPv4 link-local address",
				do:   "ip addr add 169.254.10.1/16 dev enp33s0",
				undo: "ip addr flush dev enp33s0",
				want: []string{busy + "enp33s0 has address 169.254.10.1"},
			},
		},
		{{
			name: "a virtual machine of somebody else's",
			do: `cat >holder.xml <<'END'
<domain type='qemu'><name>holder</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='q35'>hvm</type></os>
<devices><hostdev mode='subsystem' type='pci' managed='no'>
<source><address domain='0' bus='0x21' slot='0' function='0'/></source></hostdev></devices></domain>
END
virsh define holder.xml`,
			undo: "virsh undefine holder",
			want: []string{"0000:21:00.0", "holder"},
		}},
		{
			{
				name: "a foreign device in the IOMMU group",
				do:   "echo 1 >/sys/bus/pci/rescan; udevadm settle",
				undo: aloneInItsGroup,
				want: []string{"the IOMMU group of 0000:03:02.0 has 0000:02:00.0 0000:03:01.0 0000:03:02.0, and had " +
					"0000:02:00.0 0000:03:02.0"},
			},
			{
				name: "a device that is gone",
				do:   "echo 1 >/sys/bus/pci/devices/0000:41:00.0/remove",
				undo: "echo 1 >/sys/bus/pci/rescan; udevadm settle\n" + aloneInItsGroup,
				want: []string{"this host is not as it was when the plan was made, and nothing was changed",
					"0000:41:00.0"},
			},
		},
		{{
			name: "a NIC in a container",
			do:   "ip netns add box; ip link set enp33s0 netns box",
			undo: "ip netns del box" + back("enp33s0"),
			want: []string{busy + "its network device enp33s0 is in the network namespace of box"},
		}},
		{{
			// At the other end of the cable, in its own namespace.
			name: "a connection to network storage",
			do: `ip netns add far; ip link set enp65s0 netns far
ip -n far addr add 192.0.2.9/24 dev enp65s0; ip -n far link set enp65s0 up
ip addr add 192.0.2.2/24 dev enp33s0; ip link set enp33s0 up
systemd-run --quiet --unit=far -p NetworkNamespacePath=/run/netns/far perl -MIO::Socket::INET -e '
	$l = IO::Socket::INET->new(LocalAddr => "192.0.2.9", LocalPort => 3260, Listen => 1, ReuseAddr => 1) or die;
	$c = $l->accept; sleep 1000'
systemd-run --quiet --unit=near perl -MIO::Socket::INET -e '
	sleep 1 until $s = IO::Socket::INET->new("192.0.2.9:3260"); sleep 1000'
for i in $(seq 60); do ! grep -q ":0CBC 01 " /proc/net/tcp || break; sleep 1; done; grep -q ":0CBC 01 " /proc/net/tcp`,
			undo: "systemctl stop near far; ip addr flush dev enp33s0; ip link set enp33s0 down; ip netns del far" +
				back("enp65s0"),
			want: []string{"0000:21:00.0 carries a connection with 192.0.2.9 for iSCSI (through enp33s0)"},
		}},
	}
}

// installDriverctl works like apt, without a network.
func (h *small) installDriverctl(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	download := exec.CommandContext(t.Context(), "apt-get", "--quiet", "-o", "APT::Sandbox::User=", "download",
		"driverctl")
	download.Dir = dir
	if out, err := download.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	found, err := filepath.Glob(filepath.Join(dir, "driverctl_*.deb"))
	if err != nil || len(found) != 1 {
		t.Fatalf("packages %v, %v", found, err)
	}
	deb, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	h.putText(t, "/root/driverctl.base64", base64.StdEncoding.EncodeToString(deb))
	h.mustHost(t, "base64 -d driverctl.base64 >driverctl.deb && dpkg --install driverctl.deb")
}

func (h *small) each(t *testing.T, scripts []string) {
	t.Helper()
	h.mustHost(t, "(\n"+strings.Join(scripts, "\n) && (\n")+"\n)")
}

// refuses expects the reasons, and no change.
func (h *small) refuses(t *testing.T, command string, reasons ...string) {
	t.Helper()
	// Each call costs an emulated CPU a third of a second.
	out, status := h.host(t, "sh fingerprint >/run/before; "+command+
		"; status=$?; sh fingerprint | diff -u /run/before - | sed 's/^/changed: /'; exit $status")
	if status != exitFaults {
		t.Errorf("%s: status %d, want %d\n%s", command, status, exitFaults, out)
	}
	for _, want := range reasons {
		if !strings.Contains(out, want) {
			t.Errorf("%s does not say %q:\n%s", command, want, out)
		}
	}
	if strings.Contains(out, "changed: ") {
		t.Errorf("refused, and something was changed (-before +after):\n%s", out)
	}
}
