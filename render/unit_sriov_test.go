package render

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// waitFor waits up to five seconds for something that happens beside the test.
func waitFor(ok func() bool) error {
	for range 1000 {
		if ok() {
			return nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	return errors.New("it does not happen")
}

// fakeIP knows MAC addresses of virtual functions, MTUs and nothing else.
const fakeIP = `echo "ip $*" >>"$RACKLESS_ROOT/log"
case $* in
"link show dev "*) /bin/cat "$RACKLESS_ROOT/vfmacs" 2>/dev/null || : ;;
"-o addr show dev "*) /bin/cat "$RACKLESS_ROOT/addr-$5" 2>/dev/null || : ;;
*" mac "*)
	printf '    vf %s     link/ether %s brd ff:ff:ff:ff:ff:ff, vlan 7, %s\n' "$6" "$8" \
		'spoof checking on, link-state enable, trust off' >>"$RACKLESS_ROOT/vfmacs" ;;
*" mtu "*) echo "$6" >"$RACKLESS_ROOT/sys/class/net/$4/mtu" ;;
esac`

const r740PF = "0000:3b:00.0"

func r740Bus(t *testing.T) (*fakeRoot, *pciBus, []byte) {
	r := newFakeRoot(t)
	r.program("ip", fakeIP)
	b := startBus(r)
	b.add(r740PF, "40", "0x15b3", "0x1021", "0x020000", "mlx5_core")
	dir := busDir + "devices/" + r740PF + "/"
	r.write(dir+"sriov_totalvfs", "8")
	r.write(dir+"sriov_numvfs", "0")
	r.write(dir+"sriov_drivers_autoprobe", "1")
	r.write(dir+"net/ens1f0np0/phys_port_name", "p0")
	r.write("sys/class/net/ens1f0np0/mtu", "1500")
	r.write("sys/class/net/ens1f0np0/type", "1")
	for i := range 4 {
		b.home["0000:3b:00."+string(rune('2'+i))] = "mlx5_core"
	}
	return r, b, hostScript(t, hostR740(t), "libexec/sriov.sh")
}

func TestVirtualFunctionsComeWithTheirAddressesAndGo(t *testing.T) {
	t.Parallel()
	r, b, script := r740Bus(t)
	dir := busDir + "devices/" + r740PF + "/"
	mac := hostR740(t).Plan.Nodes[0].NICs[0].MAC
	r.mustFail(script, "virtual function 3: not there", "status")
	for range 2 {
		r.mustRun(script, "start")
		r.want(map[string]string{dir + "sriov_numvfs": "4", dir + "sriov_drivers_autoprobe": "1",
			"sys/class/net/ens1f0np0/mtu": "9000"})
		if got := b.driver("0000:3b:00.5"); got != "vfio-pci" {
			t.Errorf("the lab's function is with %q", got)
		}
	}
	log := r.read("log")
	for _, want := range []string{
		"ip link set dev ens1f0np0 vf 3 mac " + mac, "ip link set dev ens1f0np0 vf 3 trust on",
		"ip link set dev ens1f0np0 vf 3 spoofchk off", "ip link set dev ens1f0np0 vf 3 vlan 0",
		"ip link set dev ens1f0np0 vf 3 state auto", "ip link set dev ens1f0np0 up",
	} {
		if strings.Count(log, want+"\n") == 0 {
			t.Errorf("no %q in\n%s", want, log)
		}
	}
	if n := strings.Count(log, " mac "); n != 1 {
		t.Errorf("%d addresses set in two starts; want 1, once:\n%s", n, log)
	}
	// Those that are nobody's get the host's driver, as the host has it.
	if err := waitFor(func() bool { return b.driver("0000:3b:00.4") == "mlx5_core" }); err != nil {
		t.Errorf("a function of the host is with %q", b.driver("0000:3b:00.4"))
	}
	r.mustRun(script, "status")
	r.mustRun(script, "stop")
	r.want(map[string]string{dir + "sriov_numvfs": "0", "sys/class/net/ens1f0np0/mtu": "1500"})
	r.mustRun(script, "stop")
}

func TestVirtualFunctionsInUseAreLeftAlone(t *testing.T) {
	t.Parallel()
	r, b, script := r740Bus(t)
	dir := busDir + "devices/" + r740PF + "/"
	r.write(dir+"sriov_numvfs", "2")
	if err := waitFor(func() bool { return r.base(dir+"virtfn1") != "" }); err != nil {
		t.Fatal(err)
	}
	b.probe("0000:3b:00.3")
	r.write(busDir+"devices/0000:3b:00.3/net/ens1f0v1/operstate", "up")
	r.write("addr-ens1f0v1", "7: ens1f0v1 inet 192.0.2.1/24 scope global ens1f0v1")
	r.mustFail(script, r740PF+" has 2 virtual functions and is to have 4, which goes by way of 0; number 1 cannot go: "+
		"0000:3b:00.3 is in use: ens1f0v1 has an address", "start")
	r.want(map[string]string{dir + "sriov_numvfs": "2", "sys/class/net/ens1f0np0/mtu": "1500"})
	// The same with a guest.
	if err := os.Remove(r.path(busDir + "devices/0000:3b:00.3/driver")); err != nil {
		t.Fatal(err)
	}
	r.write(busDir+"devices/0000:3b:00.3/driver_override", "vfio-pci")
	b.probe("0000:3b:00.3")
	r.open("99", "dev/vfio/91")
	r.mustFail(script, "0000:3b:00.3 is in use by processes 99", "start")
	r.want(map[string]string{dir + "sriov_numvfs": "2"})
}

func TestSRIOVSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	dir := busDir + "devices/" + r740PF + "/"
	tests := []struct {
		name   string
		change func(*fakeRoot)
		want   string
	}{
		{"no SR-IOV at all", func(r *fakeRoot) {
			os.Remove(r.path(dir + "sriov_totalvfs"))
		}, "offers no SR-IOV: switch it on in the NIC's firmware"},
		{"too few", func(r *fakeRoot) {
			r.write(dir+"sriov_totalvfs", "2")
		}, "offers 2 virtual functions, 4 are needed: raise NUM_OF_VFS"},
		{"no network device", func(r *fakeRoot) { os.RemoveAll(r.path(dir + "net")) }, "has no network device"},
		{"no room for their addresses", func(r *fakeRoot) {
			r.program("cat", `case $1 in */sriov_numvfs) echo 0 ;; *) exec /bin/cat "$@" ;; esac`)
		}, `does not make 4 virtual functions. See the end of dmesg: "not enough MMIO resources"`},
		{"an address that the NIC refuses", func(r *fakeRoot) {
			r.program("ip", `case $* in *" mac "*) exit 2 ;; esac`)
		}, "virtual function 3 does not take MAC address 52:54:00:"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, _, script := r740Bus(t)
			tt.change(r)
			r.mustFail(script, tt.want, "start")
		})
	}
}

func TestInfiniBandGetsGUIDs(t *testing.T) {
	t.Parallel()
	r, _, script := r740Bus(t)
	r.write("sys/class/net/ens1f0np0/type", "32")
	r.mustRun(script, "start")
	mac := hostR740(t).Plan.Nodes[0].NICs[0].MAC
	guid := "50:54:00:ff:fe:" + mac[9:]
	for _, want := range []string{"vf 3 node_guid " + guid, "vf 3 port_guid " + guid} {
		if !strings.Contains(r.read("log"), want) {
			t.Errorf("no %q in\n%s", want, r.read("log"))
		}
	}
}

func TestMACAddressesAreCheckedBeforeTheyGoIntoScripts(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"52:54:00:AB:cd:01": "52:54:00:ab:cd:01", "": "00:00:00:00:00:00", "52:54:00:ab:cd": "00:00:00:00:00:00",
		"$(reboot)": "00:00:00:00:00:00", "5:5:5:5:5:5": "00:00:00:00:00:00",
	} {
		if got := cleanMAC(in); got != want {
			t.Errorf("cleanMAC(%q) = %q, want %q", in, got, want)
		}
	}
}
