package connectx_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rackless/rackless/rdma/connectx"
	"github.com/rackless/rackless/vm/image"
	"github.com/rackless/rackless/vm/kerneltest"
)

func again(command string) string {
	return "no=1; for i in 1 2 3 4 5 6 7 8 9 10; do { " + command + "; } && no=0 && break; sleep 1; done; [ $no = 0 ]"
}

func TestUnmodifiedDriver(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three guests")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	o := image.Options{Cache: filepath.Join(cache, "rackless", "images")}
	node, err := image.Node.Ensure(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	qemu, err := image.QEMU.Ensure(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	initrd := kerneltest.GuestInitrd(t, node)

	adapters, logf := kerneltest.Watch(t)
	s := connectx.NewServer(connectx.Options{Log: logf})
	defer s.Close()
	var ports [3]*connectx.Port
	var ms [3]*kerneltest.Guest
	mac := func(i int) [6]byte { return [6]byte{0x50, 0x6b, 0x4b, 0, 0, byte(i + 1)} }
	frames := func(from int, f []byte) {
		for i, p := range ports {
			if i != from && (f[0]&1 != 0 || [6]byte(f) == mac(i)) {
				p.Deliver(f)
			}
		}
	}
	models := []string{connectx.ConnectX4Lx, connectx.ConnectX6, connectx.ConnectX7}
	for i := range ports {
		name := string(rune('a' + i))
		ports[i], err = s.AddNIC(connectx.NIC{Name: name, MAC: mac(i), Model: models[i], Link: true,
			Socket: filepath.Join(dir, name+".nic"), Frames: func(f []byte) { frames(i, f) }})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, memory := range []string{kerneltest.SharedMemory, kerneltest.SharedMemory, kerneltest.PrivateMemory} {
		name := string(rune('a' + i))
		ms[i] = kerneltest.Boot(t, adapters, dir, name, fmt.Sprintf("10.0.0.%d", i+1), filepath.Join(dir, name+".nic"),
			memory,
			qemu, node, initrd)
	}
	for _, m := range ms {
		m.Up()
	}
	a, server, private := ms[0], ms[1], ms[2]
	for command, wants := range map[string][]string{
		"ibstat": {"CA type: MT4117", "State: Active", "Physical state: LinkUp", "Rate: 25",
			"Link layer: Ethernet"},
		"ibv_devinfo":    {"fw_ver:\t\t\t\t14.32.1010", "board_id:\t\t\tMT_2420110034", "PORT_ACTIVE"},
		"ethtool eth0":   {"Speed: 25000Mb/s", "Link detected: yes"},
		"rdma link":      {"link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev eth0"},
		"rdma statistic": {"rx_write_requests", "out_of_sequence", "np_cnp_sent"},
		"cat /sys/class/infiniband/mlx5_0/ports/1/gids/3 /sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/3": {
			":ffff:0a00:0001", "RoCE v2"},
		"cat /sys/kernel/debug/mlx5/*/cc_params/np_cnp_dscp": {"48"},
		"ping -c 3 10.0.0.2": {"3 packets received"},
	} {
		out := a.Run(command)
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in\n%s", command, want, out)
			}
		}
	}
	for m, wants := range map[*kerneltest.Guest][]string{
		server:  {"CA type: MT4123", "Rate: 200", "Speed: 200000Mb/s"},
		private: {"CA type: MT4129", "Rate: 400", "Speed: 400000Mb/s"},
	} {
		out := m.Run("ibstat; ethtool eth0")
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in\n%s", m.Name, want, out)
			}
		}
	}
	for _, c := range []struct{ command, want string }{
		{"ethtool -a eth0 | grep RX:", "on"},
		{"dcb pfc show dev eth0", "3:off"},
		{"dcb pfc set dev eth0 prio-pfc all:off 3:on && dcb pfc show dev eth0", "3:on"},
		{"ethtool -S eth0", "rx_prio3_pause_transition: 0"},
		{"ethtool -a eth0 | grep RX:", "off"},
		{"dcb app replace dev eth0 dscp-prio 26:4 && dcb app show dev eth0", "26:4"},
		{"! dcb app show dev eth0 | grep 26:4 || dcb app del dev eth0 dscp-prio 26:4 && echo gone", "gone"},
		{"dcb ets set dev eth0 prio-tc 3:5 && dcb ets show dev eth0", "3:5"},
		{"dcb maxrate set dev eth0 tc-maxrate 5:1Gbit && dcb maxrate show dev eth0", "5:1Gbit"},
		{"ethtool -A eth0 rx on tx on && ethtool -S eth0", "rx_global_pause: 0"},
		{"cat /sys/class/infiniband/mlx5_0/ports/1/hw_counters/roce_slow_restart", "0"},
		{"ibstat | grep 'State: Active'", "Active"},
	} {
		// dcb of Debian 12 fails if a new second begins between its two messages to the kernel.
		if out := a.Run(again(c.command)); !strings.Contains(out, c.want) {
			t.Errorf("%s: no %q in\n%s", c.command, c.want, out)
		}
	}
	between := func(asServer, asClient string) {
		t.Helper()
		server.Start("timeout 60 " + asServer)
		if strings.HasPrefix(asServer, "ib_") {
			server.Until("Waiting for client")
		}
		// A server listens just after it prints that it does, and rping prints nothing. The server accepts one client,
		// so the repetition hides no failure.
		out := a.Run(again("timeout 60 " + asClient))
		server.Finish(asServer)
		t.Logf("%s: %s", asClient, out[max(0, len(out)-260):])
	}
	const dev = " -F -d mlx5_0 -x 3 "
	for _, direct := range []bool{true, false} {
		s.SetDirect(direct)
		between("ib_send_lat -F -d mlx5_0 -x 2 -n 100", "ib_send_lat -F -d mlx5_0 -x 2 -n 100 10.0.0.2") // RoCE v1
		for _, tool := range []string{"ib_write_lat" + dev + "-n 1000", "ib_send_bw" + dev + "-n 500",
			"ib_send_lat" + dev + "-e -n 200", "ib_read_bw" + dev + "-n 200", "ib_write_bw" + dev + "-s 1048576 -n 50",
			"ib_atomic_bw" + dev + "-A FETCH_AND_ADD -n 500", "ib_send_bw" + dev + "-c UD -n 500",
			"ib_write_bw" + dev + "-c UC -n 100", "ib_send_bw" + dev + "-c XRC -n 100",
			"ib_write_bw" + dev + "-c XRC -n 100", "ib_send_bw" + dev + "--use-srq -r 64 -q 4 -n 100",
			"ib_send_lat" + dev + "-R -n 200"} {
			between(tool, tool+" 10.0.0.2")
		}
		between("rping -s -a 10.0.0.2 -V -S 65000 -C 50", "rping -c -a 10.0.0.2 -V -S 65000 -C 50")
	}
	// Memory that the adapter cannot map is accessed by messages. QEMU answers each from its main loop, so on a busy
	// machine the peer needs more patience than perftest's default of 8 times 67 ms.
	const file = "ib_write_bw"
	sum := strings.Fields(a.Run("md5sum /usr/bin/" + file))[0]
	for _, by := range []struct {
		from *kerneltest.Guest
		at   string
		to   *kerneltest.Guest
	}{{private, "10.0.0.3", a}, {a, "10.0.0.1", private}} {
		by.from.Start("timeout 120 rping -s -a " + by.at + " -V -S 65000 -C 5")
		by.to.Run(again("timeout 60 rping -c -a " + by.at + " -V -S 65000 -C 5"))
		by.from.Finish("rping -s")
		const slow = "ib_write_bw" + dev + "-u 18 -s 4096 -n 20"
		by.from.Start("timeout 120 " + slow)
		by.from.Until("Waiting for client")
		by.to.Run(again("timeout 60 " + slow + " " + by.at))
		by.from.Finish("ib_write_bw")
		by.from.Run("httpd -p 80 -h /usr/bin")
		got := by.to.Run(again("timeout 60 wget -q -O /tmp/got http://" + by.at + "/" + file + " && md5sum /tmp/got"))
		if fields := strings.Fields(got); len(fields) == 0 || fields[0] != sum {
			t.Errorf("%s to %s: the file has the sum %q, want %s", by.from.Name, by.to.Name, got, sum)
		}
	}
	ports[0].SetLink(false)
	a.Run(again("ibstat | grep 'State: Down'"))
	ports[0].SetLink(true)
	a.Run(again("ibstat | grep 'State: Active'"))
	a.Run("rmmod mlx5_ib && rmmod mlx5_core && insmod /lib/modules/mlx5_core.ko.gz && insmod " +
		"/lib/modules/mlx5_ib.ko.gz" +
		" && ip addr add 10.0.0.1/24 dev eth0 && ip link set eth0 up")
	a.Run(again("ibstat | grep 'State: Active'"))
	between("ib_write_lat"+dev+"-n 1000", "ib_write_lat"+dev+"-n 1000 10.0.0.2")
}
