package render

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// Strict decoding refuses any other key (https://netplan.readthedocs.io/en/stable/netplan-yaml/).
type netplanFile struct {
	Network netplanBody `yaml:"network"`
}

type netplanBody struct {
	Version   int                    `yaml:"version"`
	Ethernets map[string]netplanLink `yaml:"ethernets"`
}

type netplanLink struct {
	Match struct {
		MAC    string `yaml:"macaddress"`
		Driver string `yaml:"driver"`
	} `yaml:"match"`
	MTU       int      `yaml:"mtu"`
	Addresses []string `yaml:"addresses"`
	DHCP4     bool     `yaml:"dhcp4"`
	DHCP6     bool     `yaml:"dhcp6"`
	AcceptRA  *bool    `yaml:"accept-ra"`
	Optional  bool     `yaml:"optional"`
}

type userData struct {
	Hostname   string   `yaml:"hostname"`
	Update     bool     `yaml:"package_update"`
	Packages   []string `yaml:"packages"`
	WriteFiles []struct {
		Path        string `yaml:"path"`
		Permissions string `yaml:"permissions"`
		Append      bool   `yaml:"append"`
		Content     string `yaml:"content"`
	} `yaml:"write_files"`
	RunCmd []string `yaml:"runcmd"`
}

func decodeYAML[T any](t *testing.T, data []byte) T {
	t.Helper()
	var v T
	if err := yaml.UnmarshalWithOptions(data, &v, yaml.Strict()); err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	return v
}

func TestGuestNetworksAreWhatThePlanSays(t *testing.T) {
	t.Parallel()
	for _, c := range hostCases() {
		in := c.in(t)
		all := render(t, in)
		for _, n := range in.Plan.Nodes {
			dir := "guests/" + n.Name + "/"
			file := decodeYAML[netplanFile](t, all[dir+"60-rackless.yaml"].Data).Network
			seed := decodeYAML[netplanBody](t, all[dir+"network-config"].Data)
			if file.Version != 2 || seed.Version != 2 || len(file.Ethernets) != len(n.NICs) ||
				len(seed.Ethernets) != len(n.NICs)+1 {
				t.Fatalf("%s/%s: %+v %+v", c.name, n.Name, file, seed)
			}
			management := seed.Ethernets["rackless-management"]
			if !management.DHCP4 || !strings.Contains(string(all[DomainPath(n.Name)].Data), management.Match.MAC) {
				t.Errorf("%s/%s: management by %q, which the domain does not have", c.name, n.Name,
					management.Match.MAC)
			}
			for _, nic := range n.NICs {
				l := file.Ethernets["rackless-"+nic.Name]
				if diff := cmp.Diff(l, seed.Ethernets["rackless-"+nic.Name]); diff != "" {
					t.Errorf("netplan and seed differ: %s", diff)
				}
				if (l.Match.MAC == "") == (l.Match.Driver == "") {
					t.Errorf("%s/%s: %s is found by %+v", c.name, n.Name, nic.Name, l.Match)
				}
				if l.MTU != in.Lab.Fabric.MTU || len(l.Addresses) != 1 || l.Addresses[0] != nic.Addr.String() ||
					l.DHCP4 || l.DHCP6 || l.AcceptRA == nil || *l.AcceptRA || !l.Optional {
					t.Errorf("%s/%s: %s is %+v", c.name, n.Name, nic.Name, l)
				}
			}
		}
	}
}

func TestUserDataIsCloudConfig(t *testing.T) {
	t.Parallel()
	in := hostH20(t)
	all := render(t, in)
	data := all["guests/vm07/user-data"].Data
	if !strings.HasPrefix(string(data), "#cloud-config\n") {
		t.Errorf("the first line is %q", strings.SplitN(string(data), "\n", 2)[0])
	}
	u := decodeYAML[userData](t, data)
	v, err := newView(in)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, f := range u.WriteFiles {
		files[f.Path] = f.Content
	}
	if diff := cmp.Diff(string(v.gidScript()), files["/usr/local/bin/rackless-gid"]); diff != "" {
		t.Errorf("rackless-gid (-want +got):\n%s", diff)
	}
	for path, want := range map[string]string{
		"/etc/sysctl.d/90-rackless.conf":          "net.ipv4.conf.all.arp_ignore = 1",
		"/etc/hosts":                              "10.0.0.8 vm07\n10.0.1.8 vm07-eth1\n",
		"/etc/security/limits.d/90-rackless.conf": "memlock unlimited",
	} {
		if !strings.Contains(files[path], want) {
			t.Errorf("%s has %q; want %q in it", path, files[path], want)
		}
	}
	beside := string(all["guests/vm07/nccl-topology.xml"].Data)
	if diff := cmp.Diff(beside, files["/etc/nccl-topology.xml"]); diff != "" ||
		files["/etc/nccl.conf"] != "NCCL_TOPO_FILE=/etc/nccl-topology.xml\n" {
		t.Errorf("nccl-topology.xml (-beside +in):\n%s", diff)
	}
	for _, domains := range []bool{false, true} {
		seeds, err := Seeds(in, domains)
		if err != nil || strings.Contains(seeds[7].UserData, "nccl") != domains {
			t.Errorf("domains %v: %v\n%s", domains, err, seeds[7].UserData)
		}
	}
	if u.Hostname != "vm07" || len(u.Packages) != len(packages()) || len(u.RunCmd) != 4 {
		t.Errorf("%+v", u)
	}
	if one := decodeYAML[userData](t, all["guests/vm00/user-data"].Data); len(one.WriteFiles) != len(u.WriteFiles)-1 {
		t.Error("a node with one NIC has settings for several")
	}
}

func TestCloudInitTakesTheSeeds(t *testing.T) {
	t.Parallel()
	cloudInit := findProgram(t, "cloud-init")
	dir := t.TempDir()
	for _, c := range hostCases() {
		in := c.in(t)
		all := render(t, in)
		n := in.Plan.Nodes[len(in.Plan.Nodes)-1].Name
		path := filepath.Join(dir, c.name)
		if err := os.WriteFile(path, all["guests/"+n+"/user-data"].Data, 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, cloudInit, "schema", "--config-file", path).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "Valid") {
			t.Errorf("%s: %v\n%s", c.name, err, out)
		}
	}
}

func parseKeyfile(t *testing.T, data []byte) map[string]string {
	t.Helper()
	values := map[string]string{}
	section := ""
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[' && strings.HasSuffix(line, "]"):
			section = line[1 : len(line)-1]
		default:
			key, value, ok := strings.Cut(line, "=")
			if !ok || section == "" {
				t.Fatalf("line %q in section %q", line, section)
			}
			if _, twice := values[section+"."+key]; twice {
				t.Fatalf("%s.%s is there twice", section, key)
			}
			values[section+"."+key] = value
		}
	}
	return values
}

func TestNetworkManagerConnections(t *testing.T) {
	t.Parallel()
	all := render(t, hostEPYC(t))
	a := all["guests/vm01/rackless-eth0.nmconnection"]
	want := map[string]string{
		"connection.id": "rackless-eth0", "connection.type": "ethernet", "ethernet.mtu": "4200",
		"match.driver": "mlx5_core;",
		"ipv4.method":  "manual", "ipv4.address1": "10.0.0.2/24", "ipv4.never-default": "true",
		"ipv6.method": "link-local",
	}
	if diff := cmp.Diff(want, parseKeyfile(t, a.Data)); diff != "" {
		t.Error(diff)
	}
	// NetworkManager ignores connections that others can read.
	if a.Mode != fs.FileMode(0o600) {
		t.Errorf("mode %v", a.Mode)
	}
}

func TestAPortIsFoundByWhatIsSureToBeItsOwn(t *testing.T) {
	t.Parallel()
	nicCard := plan.NodeDevice{ID: "0000:41:00.0", Kind: plan.KindNIC, Functions: []string{"0000:41:00.0"}}
	tests := []struct {
		name        string
		mac, master string
		card        plan.NodeDevice
		more        []plan.NodeDevice
		wantMAC     string
		wantDriver  string
	}{
		{"a whole NIC by the address that the host shows", "b8:3f:d2:01:02:03", "", nicCard, nil, "b8:3f:d2:01:02:03",
			""},
		{"a stand-in of a snapshot is no address", "02:00:00:00:00:07", "", nicCard, nil, "", "mlx5_core"},
		{"a member of a bond shows the bond's address", "b8:3f:d2:01:02:03", "bond0", nicCard, nil, "", "mlx5_core"},
		{"no address at all", "", "", nicCard, nil, "", "mlx5_core"},
		{"zeros", "00:00:00:00:00:00", "", nicCard, nil, "", "mlx5_core"},
		{"two functions of one driver and no address: neither", "", "", plan.NodeDevice{ID: "0000:41:00.0",
			Kind: plan.KindNIC, Functions: []string{"0000:41:00.0", "0000:41:00.1"}}, nil, "", ""},
		{"a virtual function of the same driver beside it: neither", "", "", nicCard,
			[]plan.NodeDevice{{ID: "0000:41:00.1", Kind: plan.KindVF, VF: new(0)}}, "", ""},
		{"a virtual function by the plan's", "b8:3f:d2:01:02:03", "", plan.NodeDevice{ID: "0000:41:00.0",
			Kind: plan.KindVF, VF: new(2)}, nil, "52:54:00:00:00:01", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := &topology.Host{}
			for _, a := range []string{"0000:41:00.0", "0000:41:00.1"} {
				addNIC(t, h, a, "enp65s0f"+a[11:], tt.mac, 25_000, 0)
			}
			h.NICs[0].Ports[0].Master = tt.master
			n := plan.Node{Name: "vm", Cards: append([]plan.NodeDevice{tt.card}, tt.more...),
				NICs: []lab.NIC{{Name: "eth0", MAC: "52:54:00:00:00:01", Addr: netip.MustParsePrefix("10.0.0.1/24")}}}
			v, err := newView(Input{Plan: &plan.Plan{Nodes: []plan.Node{n}},
				Lab: &lab.Lab{Fabric: lab.Fabric{MTU: 4200}}, Host: h})
			if err != nil {
				t.Fatal(err)
			}
			l := v.links(0)[0]
			if l.MAC != tt.wantMAC || l.Driver != tt.wantDriver {
				t.Errorf("found by address %q, driver %q; want %q, %q", l.MAC, l.Driver, tt.wantMAC, tt.wantDriver)
			}
			key := parseKeyfile(t, []byte(v.page("nmconnection", l)))
			file := decodeYAML[netplanFile](t, []byte("network:\n"+v.netplan([]link{l}, "", "  ")))
			if !l.Found() && (key["connection.autoconnect"] != "false" || len(file.Network.Ethernets) != 0) {
				t.Errorf("a port that cannot be told would get an address all the same: %v %+v", key, file)
			}
		})
	}
}

func TestAnEmulatedNICIsFoundByThePlansAddress(t *testing.T) {
	t.Parallel()
	n := plan.Node{Name: "vm", NICs: []lab.NIC{{Name: "eth0", MAC: "52:54:00:AB:00:01",
		Addr: netip.MustParsePrefix("10.0.0.1/24")}}}
	v, err := newView(Input{Plan: &plan.Plan{Nodes: []plan.Node{n}}, Lab: &lab.Lab{}})
	if err != nil {
		t.Fatal(err)
	}
	if l := v.links(0)[0]; l.MAC != "52:54:00:ab:00:01" {
		t.Errorf("found by %q", l.MAC)
	}
}

func TestTheGIDIsFoundByContent(t *testing.T) {
	t.Parallel()
	sh, root := findProgram(t, "sh"), t.TempDir()
	v, err := newView(hostEPYC(t))
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(root, "rackless-gid")
	files := map[string]string{"rackless-gid": string(v.gidScript())}
	for _, g := range []struct{ dev, index, gid, kind string }{
		{"mlx5_0", "0", "fe80:0000:0000:0000:5054:00ff:fe00:0001", "IB/RoCE v1"},
		{"mlx5_0", "1", "0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2"}, // 10.0.0.1
		{"mlx5_1", "2", "0000:0000:0000:0000:0000:ffff:0a00:000a", "IB/RoCE v1"},
		{"mlx5_1", "5", "0000:0000:0000:0000:0000:ffff:0a00:000a", "RoCE v2"}, // 10.0.0.10
	} {
		port := "sys/class/infiniband/" + g.dev + "/ports/1/"
		files[port+"gids/"+g.index], files[port+"gid_attrs/types/"+g.index] = g.gid+"\n", g.kind+"\n"
	}
	for name, data := range files {
		file := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755),
			os.WriteFile(file, []byte(data), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	run := func(address string) (out string, status int) {
		cmd := exec.Command(sh, program, address)
		cmd.Env = append(os.Environ(), "RACKLESS_ROOT="+root)
		said, err := cmd.CombinedOutput()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return string(said), exit.ExitCode()
		}
		if err != nil {
			t.Fatal(err)
		}
		return string(said), 0
	}
	for address, want := range map[string]string{"10.0.0.1": "mlx5_0 1 1\n", "10.0.0.10": "mlx5_1 1 5\n"} {
		if got, status := run(address); got != want || status != 0 {
			t.Errorf("%s: %q, status %d; want %q", address, got, status, want)
		}
	}
	if out, status := run("10.0.0.2"); status == 0 || !strings.Contains(out, "no RoCE v2 GID with 10.0.0.2") {
		t.Errorf("status %d: %s", status, out)
	}
	for _, bad := range []string{"", "x", "1.2.3", "1.2.3.4.5", "$(reboot)", "::1"} {
		if out, status := run(bad); status != 2 {
			t.Errorf("%q: status %d\n%s", bad, status, out)
		}
	}
}
