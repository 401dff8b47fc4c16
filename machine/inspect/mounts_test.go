package inspect

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseMountInfo(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, in string
		want     []mount
	}{
		{
			"with optional fields, and without",
			"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 propagate_from:2 - ext3 /dev/root rw,errors=continue\n27 1 " +
				"254:0 / / rw - ext4 /dev/vda rw\n",
			[]mount{
				{dev: "98:0", source: "/dev/root", fsType: "ext3", root: "/mnt1", point: "/mnt2"},
				{dev: "254:0", source: "/dev/vda", fsType: "ext4", root: "/", point: "/"},
			},
		},
		{
			"a subvolume of btrfs",
			"61 1 0:34 /@home /home rw shared:31 - btrfs /dev/nvme0n1p2 rw,ssd,subvolid=257,subvol=/@home\n",
			[]mount{{dev: "0:34", source: "/dev/nvme0n1p2", fsType: "btrfs", root: "/@home", point: "/home",
				subvol: "/@home"}},
		},
		{
			"spaces and backslashes are escaped",
			`62 1 8:1 / /media/a\040b\134c\011d rw - vfat /dev/sda1 rw` + "\n",
			[]mount{{dev: "8:1", source: "/dev/sda1", fsType: "vfat", root: "/", point: "/media/a b\\c\td"}},
		},
		{
			"a source that is empty, and options that are missing", "63 1 0:40 / /x rw - tmpfs none\n",
			[]mount{{dev: "0:40", source: "none", fsType: "tmpfs", root: "/", point: "/x"}},
		},
		{"lines that are none", "\n36 35\n36 35 98:0 / / rw ext3 /dev/root rw\n- - - - - - - - -\n36 35 98:0 / / rw " +
			"- ext3\n", nil},
		{"a mount point that no kernel would give", "36 35 98:0 / /" + strings.Repeat("a/", maxPath) +
			" rw - ext3 /dev/root rw\n", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, parseMountInfo(tt.in), cmp.AllowUnexported(mount{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseMounts(t *testing.T) {
	t.Parallel()
	got := parseMounts("# comment of a file\n/dev/sda2 / ext4 rw 0 0\nrpool/ROOT/deb\\040ian /srv zfs rw\nshort line\n")
	want := []mount{
		{source: "/dev/sda2", point: "/", fsType: "ext4"},
		{source: "rpool/ROOT/deb ian", point: "/srv", fsType: "zfs"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(mount{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseSwaps(t *testing.T) {
	t.Parallel()
	got := parseSwaps("Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n" +
		"/dev/dm-1                               partition\t8388604\t\t0\t\t-2\n/swapfile file 2097148 0 -3\n\n")
	want := []mount{{source: "/dev/dm-1", point: "[SWAP]", fsType: "swap", root: "/"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(mount{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestUnescape(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "", "plain": "plain", `a\040b`: "a b", `\134`: `\`, `\04`: `\04`, `\048`: `\048`, `\400`: `\400`, `\`: `\`,
		`a\\040`: `a\ `, `\377`: "\xff",
	} {
		if got := unescape(in); got != want {
			t.Errorf("unescape(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestWorthKnowing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, in, want string }{
		{
			"parts of a file system that is mounted anyway are dropped",
			`1 0 8:1 / / rw - ext4 /dev/sda1 rw
			2 1 8:1 /var/lib/kubelet/pods/x /var/lib/kubelet/pods/x rw - ext4 /dev/sda1 rw
			3 1 8:2 / /boot rw - ext4 /dev/sda2 rw`,
			"/ /boot",
		},
		{
			"the root of an image-based system is a part of its file system",
			`1 0 8:4 /ostree/deploy/os/deploy/0 / rw - xfs /dev/sda4 rw
			2 1 8:4 / /sysroot rw - xfs /dev/sda4 rw
			3 1 8:4 /ostree/deploy/os/deploy/0/etc /etc rw - xfs /dev/sda4 rw`,
			"/ /sysroot",
		},
		{
			"in a container there are nothing but parts",
			`1 0 0:50 / / rw - overlay overlay rw
			2 1 8:1 /docker/hosts /etc/hosts rw - ext4 /dev/sda1 rw
			3 1 8:1 /docker/resolv.conf /etc/resolv.conf rw - ext4 /dev/sda1 rw`,
			"/ /etc/hosts /etc/resolv.conf",
		},
		{
			"subvolumes are whole, parts of them are not",
			`1 0 0:30 /@ / rw - btrfs /dev/sda1 rw,subvol=/@
			2 1 0:30 /@home /home rw - btrfs /dev/sda1 rw,subvol=/@home
			3 1 0:30 /@home/a /home/a rw - btrfs /dev/sda1 rw,subvol=/@home`,
			"/ /home",
		},
		{
			"a file that does not tell parts from wholes: what is below another mount of the same device says " +
				"nothing new",
			"", "/ /boot",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var points []string
			mounts := parseMountInfo(tt.in)
			if tt.in == "" {
				mounts = parseMounts("/dev/sda4 / xfs rw 0 0\n/dev/sda4 /var xfs rw 0 0\n/dev/sda3 /boot ext4 rw 0 0\n")
			}
			for _, m := range worthKnowing(mounts) {
				points = append(points, m.point)
			}
			if got := strings.Join(points, " "); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestReadMountsTakesTheFirstFileThatIsThere(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, lines, want string }{
		{
			"a live machine, whose proc/self is a link",
			"proc/self -> 4711\n# proc/self/mountinfo\nproc/4711/mountinfo = 1 0 8:1 / / rw - ext4 /dev/sda1 " +
				"rw\nproc/mounts = /dev/sdb1 / ext4 rw 0 0\n", "/dev/sda1",
		},
		{"a process that hides its own", "proc/self/mountinfo =\nproc/1/mountinfo = 1 0 8:1 / / rw - ext4 " +
			"/dev/sdc1 rw\n", "/dev/sdc1"},
		{"a dump with the old file", "proc/mounts = /dev/sdb1 / ext4 rw 0 0\n", "/dev/sdb1"},
		{"a dump with the file of a distribution", "etc/mtab = /dev/sdd1 / ext4 rw 0 0\n", "/dev/sdd1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			mounts, from := deviceReader(t, deviceTree(t, tt.lines)).readMounts()
			if len(mounts) != 1 || mounts[0].source != tt.want || !strings.Contains(tt.lines, from) {
				t.Errorf("got %v from %s, want the mount of %s", mounts, from, tt.want)
			}
		})
	}
	if mounts, from := deviceReader(t, deviceTree(t, "proc/\n")).readMounts(); mounts != nil || from != "" {
		t.Errorf("got %v from %q of nothing", mounts, from)
	}
}

func FuzzParseMountInfo(f *testing.F) {
	f.Add("36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n")
	f.Add("61 1 0:34 /@home /home rw shared:31 - btrfs /dev/nvme0n1p2 rw,subvol=/@home\n62 1 0:34 /@home/a /home/a " +
		"rw - btrfs /dev/nvme0n1p2 rw\n")
	f.Add("/dev/sda2 / ext4 rw 0 0\n/dev/dm-1 partition 8388604 0 -2\n")
	f.Add(`1 1 1:1 /\040 a\ rw - - -`)
	f.Fuzz(func(t *testing.T, text string) {
		mounts := append(append(parseMountInfo(text), parseMounts(text)...), parseSwaps(text)...)
		if len(mounts) > 3*(strings.Count(text, "\n")+1) {
			t.Errorf("%d mounts of %d lines", len(mounts), strings.Count(text, "\n")+1)
		}
		if kept := worthKnowing(mounts); len(kept) > len(mounts) || len(mounts) > 0 && len(kept) == 0 {
			t.Errorf("%d of %d mounts kept", len(kept), len(mounts))
		}
	})
}
