package device

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func encode(kind uint16, value []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	return append(b, make([]byte, (4-len(b)%4)%4)...)
}

func native32(v ...uint32) []byte {
	var b []byte
	for _, w := range v {
		b = binary.NativeEndian.AppendUint32(b, w)
	}
	return b
}

func vfList(fields ...[]byte) []byte {
	return encode(unix.IFLA_VFINFO_LIST|unix.NLA_F_NESTED, encode(nl.IFLA_VF_INFO|unix.NLA_F_NESTED,
		bytes.Join(fields, nil)))
}

func vfMAC(index uint32, mac ...byte) []byte {
	return encode(nl.IFLA_VF_MAC, append(native32(index), append(mac, make([]byte, 32-len(mac))...)...))
}

func TestVirtualFunctionsAreReadFromNetlink(t *testing.T) {
	t.Parallel()
	const unset = 1<<32 - 1
	got, err := parseVFs(bytes.Join([][]byte{
		encode(unix.IFLA_IFNAME, []byte("eno1\x00")),
		vfList(vfMAC(0, 0x52, 0x54, 0, 0x12, 0x34, 0x56), encode(nl.IFLA_VF_VLAN, native32(0, 7, 3)),
			encode(nl.IFLA_VF_VLAN_LIST|unix.NLA_F_NESTED, encode(1, append(native32(0, 7, 3), 0x88, 0xa8, 0, 0))),
			encode(nl.IFLA_VF_RATE, native32(0, 10, 1000)), encode(nl.IFLA_VF_SPOOFCHK, native32(0, 1)),
			encode(nl.IFLA_VF_TRUST, native32(0, unset)),
			encode(nl.IFLA_VF_LINK_STATE, native32(0, 2)), encode(nl.IFLA_VF_IB_NODE_GUID,
				append(native32(0, 0), binary.NativeEndian.AppendUint64(nil, 0x505400fffe123456)...)),
			encode(nl.IFLA_VF_STATS, nil)),
	}, nil))
	want := []VFSettings{{
		MAC: "52:54:00:12:34:56", VLAN: new(7), QoS: new(3), VLANProto: new(0x88a8), MinRate: new(10),
		MaxRate: new(1000), SpoofChk: new(true), LinkState: new(2),
		NodeGUID: new(uint64(0x505400fffe123456)),
	}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// A recorded answer of a real kernel.
func TestAnAnswerOfARealKernel(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/igb-vfinfo.hex")
	if err != nil {
		t.Fatal(err)
	}
	b, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	if err != nil {
		t.Fatal(err)
	}
	vfs, err := parseVFs(b)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, vf := range vfs {
		got = append(got, describeVF(vf))
	}
	want := []string{
		"2e:bc:08:94:2b:ae vlan 0 qos 0 rate 0-0 spoofchk true trust false state 0",
		"52:54:00:c8:9c:0e vlan 0 qos 0 rate 0-0 spoofchk false trust true state 0",
		"52:54:00:00:e7:f0 vlan 0 qos 0 rate 0-0 spoofchk false trust true state 0",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAnswersThatAreNoneAreErrors(t *testing.T) {
	t.Parallel()
	for name, b := range map[string][]byte{
		"too short":             vfList(encode(nl.IFLA_VF_RATE, native32(0, 1))),
		"of another function":   vfList(vfMAC(1, 2, 0, 0, 0, 0, 1)),
		"an attribute cut off":  {16, 0, 22, 0, 1},
		"a MAC without padding": vfList(encode(nl.IFLA_VF_MAC, native32(0, 1))),
	} {
		if vfs, err := parseVFs(b); err == nil {
			t.Errorf("%s: %+v", name, vfs)
		}
	}
}

func FuzzParseVFs(f *testing.F) {
	f.Add(vfList(vfMAC(0, 2, 0, 0, 0, 0, 1), encode(nl.IFLA_VF_RATE, native32(0, 1, 2))))
	f.Add([]byte{16, 0, 22, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		if vfs, err := parseVFs(b); err != nil && vfs != nil {
			t.Errorf("%d functions, and %v", len(vfs), err)
		}
	})
}

func TestGUIDsAreWrittenTheHighestByteFirst(t *testing.T) {
	t.Parallel()
	if got := guidBytes(new(uint64(0x505400fffe123456))).String(); got != "50:54:00:ff:fe:12:34:56" {
		t.Errorf("guidBytes = %s", got)
	}
}

// Settings unknown to a driver are never written.
func TestDifferencesOfSettings(t *testing.T) {
	t.Parallel()
	number := rapid.Custom(func(r *rapid.T) *int {
		if rapid.Bool().Draw(r, "unknown") {
			return nil
		}
		return new(rapid.IntRange(0, 2).Draw(r, "number"))
	})
	flag := rapid.Custom(func(r *rapid.T) *bool {
		if rapid.Bool().Draw(r, "unknown") {
			return nil
		}
		return new(rapid.Bool().Draw(r, "flag"))
	})
	settings := rapid.Custom(func(r *rapid.T) VFSettings {
		return VFSettings{
			MAC:  rapid.SampledFrom([]string{"", "02:00:00:00:00:01", "02:00:00:00:00:02"}).Draw(r, "mac"),
			VLAN: number.Draw(r, "vlan"), QoS: number.Draw(r, "qos"),
			MinRate: number.Draw(r, "min"), MaxRate: number.Draw(r, "max"), SpoofChk: flag.Draw(r, "spoofchk"),
			Trust: flag.Draw(r, "trust"),
		}
	})
	rapid.Check(t, func(r *rapid.T) {
		have, want := settings.Draw(r, "have"), settings.Draw(r, "want")
		changes := differences(have, want)
		for _, c := range changes {
			if unknown := map[VFSetting]bool{SettingMAC: have.MAC == "", SettingSpoofChk: have.SpoofChk == nil,
				SettingTrust: have.Trust == nil}[c]; unknown {
				r.Errorf("%s is set although the driver does not tell it", c)
			}
		}
		if rest := differences(want, want); len(rest) > 0 {
			r.Errorf("settings differ from themselves in %v", rest)
		}
	})
}

// Changes to a lost thread do not affect /proc/self, which shows the first thread.
func TestTheFirstThreadIsNotLost(t *testing.T) {
	t.Parallel()
	for range 200 {
		onLostThread(func() {
			if unix.Gettid() == unix.Getpid() {
				t.Error("it ran on the first thread")
			}
		})
	}
}

func TestForeignDevices(t *testing.T) {
	t.Parallel()
	own, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	link := func(name string, lower, ns int, function string) netlink.LinkAttrs {
		a := netlink.NewLinkAttrs()
		a.Name, a.ParentIndex, a.NetNsID, a.ParentDev = name, lower, ns, function
		if function != "" {
			a.ParentDevBus = "pci"
		}
		return a
	}
	got := foreignOf([]netlink.Link{
		&netlink.Device{LinkAttrs: link("lo", 0, -1, "")},
		&netlink.Device{LinkAttrs: link("eth1", 0, -1, simNIC)},
		&netlink.Macvlan{LinkAttrs: link("eth0", own.Index, 0, "")},
		&netlink.Vlan{LinkAttrs: link("eth1.5", own.Index, -1, "")},
		&netlink.Veth{LinkAttrs: link("veth0", own.Index, 0, "")},
	}, "nginx (812)")
	want := []Foreign{{Netdev: "eth1", Kind: "device", Owner: "nginx (812)", Function: simNIC},
		{Netdev: "eth0", Kind: "macvlan", Owner: "nginx (812)", Lower: "lo"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
