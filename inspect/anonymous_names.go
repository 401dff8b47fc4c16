package inspect

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io/fs"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/rackless/rackless/inspect/tree"
	"github.com/rackless/rackless/internal/cmdline"
	"github.com/rackless/rackless/internal/lazyregexp"
)

// Names are harder than numbers: a mount point, a volume group or a word of the kernel's command
// line may be a person's, a customer's or the host's. In the files that have such, every word is
// replaced that is not one of a list of words that are on many machines; words are replaced one by
// one, so that "/home/alice/a" stays below "/home/alice", and "/dev/alice/root" is still the volume
// "alice-root".

// A rule replaces what identifies in a file of a form of its own.
type rule func(d *identities, b []byte) []byte

// rules are by the end of the file's name.
var rules = []struct {
	match *lazyregexp.Regexp
	rule  rule
}{
	{lazyregexp.New(`^proc/cmdline$`), (*identities).cmdline},
	{lazyregexp.New(`^(proc/.*mountinfo|proc/.*mounts|etc/mtab|proc/swaps|sys/.*/dm/(name|uuid)|sys/.*/md/name)$`),
		(*identities).names},
	{lazyregexp.New(`/net/route$`), (*identities).route4},
	{lazyregexp.New(`/net/ipv6_route$`), (*identities).route6},
	{lazyregexp.New(`^run/udev/data/`), (*identities).udev},
	{lazyregexp.New(`^proc/version$`), (*identities).version},
	{lazyregexp.New(`^proc/cpuinfo$`), keyed(`serial|processor [0-9]+: version = [0-9A-F]+,  identification`,
		(*identities).serial)},
	{lazyregexp.New(`^proc/sysinfo$`), keyed(`sequence code|plant|[^:]*\bname|[^:]*\buuid`, (*identities).serial)},
	{lazyregexp.New(`^proc/hwloc-nofile-info$`), keyed(`hostname`, (*identities).hostName)},
	{lazyregexp.New(`^sys/.*/config$`), (*identities).pciConfig},
	{lazyregexp.New(`/kfd/topology/nodes/[0-9]+/properties$`), (*identities).kfd},
	{lazyregexp.New(`(^|/)([\w,-]*serial[\w,-]*|unique_id|phys_switch_id|phys_port_id|\w*asset_tag|` +
		`wwn|wwid|nguid|eui|fru_id|machine-id|boot_id)$`),
		(*identities).wholeSerial},
	{lazyregexp.New(`(^|/)(node_desc|hostname|domainname|ibm,partition-name|system-id)$`), (*identities).wholeName},
	{lazyregexp.New(`\.xml$`), (*identities).domain},
}

func ruleOf(name string) rule {
	for _, r := range rules {
		if r.match.MatchString(name) {
			return r.rule
		}
	}
	return nil
}

// learnHost finds out what the host is called. Its files are read for this alone, and are not recorded.
func (d *identities) learnHost(root fs.FS) {
	add := func(name string) {
		name = strings.TrimSpace(name)
		for _, name := range []string{name, strings.SplitN(name, ".", 2)[0]} {
			if len(name) > 2 && name != "localhost" && !slices.Contains(d.hosts, name) {
				d.hosts = append(d.hosts, name)
			}
		}
	}
	for _, p := range []string{"proc/sys/kernel/hostname", "etc/hostname"} {
		if b, err := tree.Bytes(root, p); err == nil && len(b) < 1000 {
			add(string(b))
		}
	}
	if b, err := tree.Bytes(root, "proc/hwloc-nofile-info"); err == nil {
		for line := range strings.Lines(string(b)) {
			if name, ok := strings.CutPrefix(line, "HostName: "); ok {
				add(name)
			}
		}
	}
}

// isHost reports whether a word is part of the host's name.
func (d *identities) isHost(word string) bool {
	return slices.ContainsFunc(d.hosts, func(name string) bool {
		return strings.EqualFold(name, word) || slices.ContainsFunc(wordShape.FindAllString(name, -1),
			func(part string) bool { return len(part) > 2 && strings.EqualFold(part, word) })
	})
}

// keepWords keeps the words of s: they are known to be no names.
func (d *identities) keepWords(s string) {
	for _, w := range wordShape.FindAllString(s, -1) {
		d.keep[w] = true
	}
}

var (
	wordShape = lazyregexp.New(`[\pL\pN_]+`)
	// address4 is an IPv4 address, in files where four numbers with dots are not a version.
	address4 = lazyregexp.New(`\b[0-9]{1,3}(?:\.[0-9]{1,3}){3}\b`)
	// plainNumber is one that counts or measures, and names nothing: it is short. "115200n8" is a serial line's speed.
	plainNumber = lazyregexp.New(`^(?:[0-9]{1,9}[kKmMgGtTbBnsx]?|0[xX][0-9a-fA-F]{1,8}|[0-9]{4,6}n[0-9])$`)
	// blockDevice is a name that the kernel gives.
	blockDevice = lazyregexp.New(
		`^(?:(?:sd|vd|xvd|hd|dasd)[a-z]{1,3}|nvme[0-9]+(?:c[0-9]+)?n[0-9]+|mmcblk[0-9]+(?:boot[0-9])?|` +
			`(?:md|dm|loop|ram|zram|sr|fd|pmem|nbd|rbd|bcache|zd|drbd|md_d)[0-9]*)(?:p?[0-9]{1,3})?$`)
	// octal are characters that the kernel writes as numbers.
	octal = lazyregexp.New(`\\[0-7]{3}`)
)

// names replaces all words that may be names, and all addresses.
func (d *identities) names(b []byte) []byte {
	var out bytes.Buffer
	for line := range strings.Lines(string(b)) {
		out.WriteString(d.nameLine(line))
	}
	return out.Bytes()
}

// nameLine replaces the words of a line. UUIDs and addresses are replaced first, and are not looked at again as words.
func (d *identities) nameLine(line string) string {
	line = address4.Get().ReplaceAllStringFunc(line, func(s string) string {
		if a, err := netip.ParseAddr(s); err == nil {
			return d.addr(a).String()
		}
		return s
	})
	var out strings.Builder
	last := 0
	for _, at := range shapes.Get().FindAllStringIndex(line, -1) {
		// "10.0.0.5::10.0.0.1" of ip= is not an IPv6 address.
		if strings.Contains(line[at[0]:at[1]], "::") && (at[0] > 0 && line[at[0]-1] == '.' || at[1] < len(line) &&
			line[at[1]] == '.') {
			continue
		}
		sub := d.shape(line[at[0]:at[1]])
		if sub == line[at[0]:at[1]] && !strings.ContainsAny(sub, ":-") {
			continue // digits that are not known: a word as others
		}
		out.WriteString(d.nameWords(line[last:at[0]]))
		out.WriteString(sub)
		last = at[1]
	}
	out.WriteString(d.nameWords(line[last:]))
	return out.String()
}

func (d *identities) nameWords(s string) string {
	// "\040" is a space in mountinfo, and no word.
	var out strings.Builder
	last := 0
	for _, at := range octal.Get().FindAllStringIndex(s, -1) {
		out.WriteString(wordShape.Get().ReplaceAllStringFunc(s[last:at[0]], d.word))
		out.WriteString(s[at[0]:at[1]])
		last = at[1]
	}
	out.WriteString(wordShape.Get().ReplaceAllStringFunc(s[last:], d.word))
	return out.String()
}

// word keeps a word that says nothing of anybody, and replaces any other.
func (d *identities) word(w string) string {
	if d.isHost(w) {
		return "host"
	}
	if d.keep[w] || plainNumber.MatchString(w) || isShortHex(w) || blockDevice.MatchString(w) || isSubstituteWord(w) {
		return w
	}
	lower := strings.ToLower(w)
	if isOrdinary(lower) || !slices.ContainsFunc(strings.Split(lower, "_"), func(part string) bool {
		return !isOrdinary(part)
	}) {
		return w
	}
	return fmt.Sprintf("name%d", number(&d.words, w))
}

// isShortHex reports whether a word is a hexadecimal number of up to four digits. Without a decimal
// digit it could be a name: Ada, Bea.
func isShortHex(w string) bool {
	return len(w) <= 4 && strings.ContainsAny(w, "0123456789") && !strings.ContainsFunc(w, func(r rune) bool {
		return r > 'f' || !isHex(byte(r))
	})
}

// isSubstituteWord reports whether a word was made by word. A snapshot of a snapshot changes nothing more.
func isSubstituteWord(w string) bool {
	return strings.HasPrefix(w, "name") && strings.Trim(w[4:], "0123456789") == ""
}

// ordinaryNames is the list of words, in lower case, that are on many machines: directories of the
// file system hierarchy, file systems and their options, values of kernel parameters, words of
// libvirt. A word may have digits behind it.
var ordinaryNames = makeWords(`
	aarch64 acpi acs active addr aer clientaddr export exports aes all allocsize allow allow_other alma always
	amd amd64 amdgpu amzn anon any apic apparmor arch arm64 aspm assign ast async at attr audit
	audit_backlog_limit auto autofs autogroup automatic backup balance balancing barrier bash big bin bind
	binfmt binfmt_misc bios blacklist blkio blksize block bluetooth bond bookworm bool boot boot_image bootdev
	bootloader both bpf bpool bridge bridges btrfs bullseye bus busses buster by bypass bytes cache capability
	cdrom center centos ceph cgroup cgroup2 cgroup_disable cgroup_enable cifs class clear clock clocksource
	cloud cluster cma codepage com commit common compress compressor conf confidentiality config config_acs
	configfs configure conservative console container containerd containers core core_pattern cpu cpuacct cpus
	cpuset crash crashkernel create crypt cstate csum current d data dax deb debian debug debugfs default
	default_permissions defaults defer deleted deny deployment dev device devices devkmsg devpts devtmpfs
	dhclient dhcp dhcp6 diff dir direct dirsync disable disable_acs_redir disabled discard disk disks dm
	dmraid doc docker domain downfall downstream driver drivers e early earlycon ecrc edac efi efifb efivarfs
	efivars eib eibrs either6 el emulate enable enabled enforcing eno enp ens enx epb epp erofs error errors
	esp etc eth ethernet event evm exec exfat ext f f2fs fast fat favordynmods fb fbdev fc fd fedora fifo file
	filename files fips firmware flags flush focal force foreign freezer from fs fsc full function fuse
	fusectl g gather gb gdm generic gib gid gpio gpt group group_id groups grpid guest guided gvfsd halt hard
	hardlockup hash hd hda hierarchy high home host hostdev hostonly hpc hpet hpmemsize hpmmiosize hugepages
	hugepagesz hugetlb hugetlbfs hung hvc hw hyperv i i915 ib ibft ibp ibpb ibrs ibt ibx id idle idx ifname
	ignore ima image images img inception indirect info inherit init init_on_alloc initramfs initrd ino inode
	inodes input install integrity intel interleave internal intx io iocharset iomem iommu ip irqaffinity
	iscsi iso iso9660 isolated isolcpus iwlwifi jammy journal k kb kdump kernel keys kfence kib ksm kubelet
	kubernetes kvm kvmclock kvmgt l l1d l1tf label landlock lapic lazytime lbm lfence lib libvirt libxl limit
	limits link linux live lo loadpin lockdown logbsize logbufs loglevel loop lost low lowerdir lsm lts luks
	luks1 luks2 lv lvm lvmthin lxcfs lxd lz lzo m mac machine madvise managed managed_irq mapper mask master
	max maxcpus mb mcast md mdraid mds media mem memmap memory memory_recursiveprot memtest merged meta mgag
	mib min mirror misc mitigations mlx mlx5 mmio mnt mod mode modeset module modules mount mountpoint mounts
	mpath mqueue ms multi multifunction multipath mwait n name nat native nbd neednet net net_cls net_prio
	netdev netns network never nfs nfs4 nfsd nft nic nixos nmi no noacl noaer noapic noatime noats noauto
	noautogroup nobarrier noble nobody nocrs node nodes nodev nodiratime nodiscard noexec nofail nofb nofl
	nogroup nohz nohz_full noinherit nointr nolock nomodeset none noquota normal nosec nosmap nosmep nosmt
	nospec nosuid nouuid nouveau nowatchdog nox2apic nr ns nsdelegate nsfs ntfs numa numa_balancing nvidia
	nvidia_drm nvidiafb nvme o of off old on on6 ondemand online only opensuse opt optional options oracle
	ostree overlay overlayfs override page page_poison pages panic part partition partlabel partuuid pasid
	passive passthrough pci pcie pcie_bus_peer2peer pcie_bus_perf pcie_bus_safe pcie_bus_tune_off percent perf
	performance permissive permit persist pf physical pib pid pids pipe pl011 poll pool portal posix power
	powersave ppc64le prctl preempt prefer preferred pressure printk priority private proc profile propagate
	propagation protect proto prox proxmox ps pstore pt pti ptmxmode ptr pts pve pvmove q qcow qemu quiet
	quota r radeon raid ram random ratelimit rbind rcu rcu_nocbs rd rdinit rdma rdtscp read readonly realloc
	reboot recovery recursive relatime relaxed release remote remount remove required resctrl rescue reserve
	reset restricted restrictive resume retbleed retpoline rhel rhgb rimage riscv64 rmeta rng ro rocep rocex
	rocky root rootflags rootfs rootvg rpc rpc_pipefs rpool rprivate rslave run runtime rw s s390x safe sbi
	sbin sched schedutil scratch sd sda sec seccomp secure security securityfs selinux selinuxfs serial server
	servers service session shared shm shortname shutdown simplefb size slab_nomerge slave sleep sles slice
	slub sm_on smack smackfs smb smt snap snapshot snapshots snd soft softlockup solo sound source sp_off
	space spec spectre speed splash spool squashfs srbds sriov srv ssd start state stateroot static static6
	status stdin stibp storage store strict strictatime stripe sub subvol subvolid subvolume suid sunit sunrpc
	supported suse swap swapaccount swapfile swapon swidth swiotlb sync sys sysfs sysroot system systemd t taa
	tag tank tasks tb tcp tdata team temp term test text thaw thin thinpool tib time timeout tmeta tmp tmpfs
	tomoyo trace tracefs transparent trixie trust tsc tsx tty ttyama ttyhvc ttymxc ttys ttyusb tun turbo type
	u uart ubuntu udev udf udp uefi uid umask unbindable unified union unix unlimited unreliable unrestricted
	unsafe untagged up upper upperdir usb used user user_id users userxattr usr utf uuid v var vda vdpa
	verbose vers version vesa vf vfat vfio vg vga vhost vhostuser virbr virt virtio virtiofs virtual vlan vm
	vmlinuz vms vmware vmx vol volume volumes vsyscall w wait warn watchdog wayland web within wlp work
	workdir worker write writeback x x2apic x86 xattr xbootldr xbus xe xen xfs xino xxhash y yama yes z zbud
	zfs znet zone zpool zram zstd zswap
`)

func makeWords(s string) map[string]bool {
	out := make(map[string]bool)
	for w := range strings.FieldsSeq(s) {
		out[w] = true
	}
	return out
}

// isOrdinary reports whether a word is in the list, as it is, in the plural or with digits behind it.
func isOrdinary(w string) bool {
	base := strings.TrimRight(w, "0123456789")
	return w == "" || base == "" || ordinaryNames[w] || ordinaryNames[base] ||
		ordinaryNames[strings.TrimSuffix(base, "s")]
}

// cmdline replaces what names something on the kernel's command line. Parameters stay, and so do
// the values of those that are understood.
func (d *identities) cmdline(b []byte) []byte { return []byte(cmdline.Map(string(b), d.parameter)) }

func (d *identities) parameter(s string) string {
	key, value, ok := strings.Cut(s, "=")
	plain := cmdline.Key(strings.Trim(key, `"`))
	switch {
	case !ok && strings.ContainsAny(s, "/@:"):
		return d.nameLine(s)
	case !ok:
		return string(d.text([]byte(s)))
	case parameters[plain] != nil, moduleParameter(plain), plain == "hugepagesz", plain == "hugepages":
		return string(d.text([]byte(s)))
	}
	return key + "=" + d.nameLine(value)
}

// udev keeps what is known to be read of a file of udev's database, which is full of serial numbers.
func (d *identities) udev(b []byte) []byte {
	var out strings.Builder
	for line := range strings.Lines(string(b)) {
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			continue
		}
		switch key {
		case "E:ID_FS_TYPE", "E:ID_FS_USAGE", "E:ID_BUS", "E:ID_TYPE":
			out.WriteString(line)
		case "E:ID_FS_LABEL":
			out.WriteString(key + "=" + d.nameLine(value))
		}
	}
	return []byte(out.String())
}

// builder is who built the kernel, and where.
var builder = lazyregexp.New(`\([^()@\s]+@[^()\s]+\)`)

func (d *identities) version(b []byte) []byte {
	return d.text(builder.Get().ReplaceAll(b, []byte("(builder@host)")))
}

// keyed returns a rule for files of lines "key: value" that replaces the values of some keys.
//
// Sources of the keys: arch/arm/kernel/setup.c (serial number of a board),
// arch/s390/kernel/processor.c and sysinfo.c (numbers and names of the machine, its partition and
// the hypervisors around it), and hwloc-gather-topology, which notes what uname(2) says.
func keyed(keys string, replace func(d *identities, value string) string) rule {
	identifying := lazyregexp.New(`(?i)^(?:` + keys + `)[ \t]*[:=][ \t]*([^\s,][^,\n]*)`)
	return func(d *identities, b []byte) []byte {
		var out strings.Builder
		for line := range strings.Lines(string(b)) {
			if m := identifying.FindStringSubmatchIndex(line); m != nil {
				value := strings.TrimRight(line[m[2]:m[3]], " \t\r")
				line = line[:m[2]] + replace(d, value) + line[m[2]+len(value):]
			}
			out.WriteString(line)
		}
		return d.text([]byte(out.String()))
	}
}

func (d *identities) hostName(string) string { return "host" }

// wholeName replaces a file that is one name.
func (d *identities) wholeName(b []byte) []byte {
	return []byte("host" + string(b[len(bytes.TrimRight(b, "\x00\n ")):]))
}

// output replaces what a command printed.
func (d *identities) output(b []byte) []byte {
	if bytes.Contains(b[:min(len(b), 500)], []byte("<domain")) {
		return d.domain(b)
	}
	b = d.text(b)
	for _, host := range d.hosts {
		// A host may be called "gpu". Where that is a word of the output, it is not the host's name.
		if len(host) > 3 && !isOrdinary(strings.ToLower(host)) {
			b = regexp.MustCompile(`\b`+regexp.QuoteMeta(host)+`\b`).ReplaceAllLiteral(b, []byte("host"))
		}
	}
	return b
}

// domainElements are the elements of libvirt's XML that say what a domain holds of its host. The
// others tell whose it is, and where its disks are: they are left out.
var domainElements = makeWords(
	`domain name uuid memory currentMemory memoryBacking hugepages page nosharepages locked vcpu vcpus iothreads cputune
	vcpupin emulatorpin iothreadpin numatune memnode cpu topology numa cell distances sibling devices hostdev
	interface disk source address driver`)

var escapeXML = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;")

// domain writes what is kept of a domain's XML. What is not XML is replaced word by word.
func (d *identities) domain(b []byte) []byte {
	var out bytes.Buffer
	decoder := xml.NewDecoder(bytes.NewReader(b))
	var open []string
	for {
		token, err := decoder.RawToken()
		if err != nil {
			if len(open) > 0 || out.Len() == 0 {
				return d.names(d.text(b))
			}
			return out.Bytes()
		}
		switch t := token.(type) {
		case xml.StartElement:
			if !domainElements[t.Name.Local] || t.Name.Space != "" {
				if skipElement(decoder) != nil {
					return d.names(d.text(b))
				}
				continue
			}
			open = append(open, t.Name.Local)
			out.WriteString("<" + t.Name.Local)
			for _, a := range t.Attr {
				if a.Name.Space != "" || a.Name.Local == "xmlns" {
					continue
				}
				fmt.Fprintf(&out, " %s=\"", a.Name.Local)
				out.WriteString(escapeXML.Replace(d.nameLine(a.Value)))
				out.WriteString("\"")
			}
			out.WriteString(">")
		case xml.EndElement:
			if len(open) == 0 || open[len(open)-1] != t.Name.Local {
				return d.names(d.text(b))
			}
			open = open[:len(open)-1]
			out.WriteString("</" + t.Name.Local + ">")
		case xml.CharData:
			s := string(t)
			if name := strings.TrimSpace(s); name != "" && path.Join(open...) == "domain/name" {
				s = strings.Replace(s, name, fmt.Sprintf("vm-%d", number(&d.domains, name)), 1)
			} else {
				s = d.nameLine(s)
			}
			out.WriteString(escapeXML.Replace(s))
		}
	}
}

// skipElement reads to the end of the element whose start was read last.
func skipElement(decoder *xml.Decoder) error {
	for depth := 1; depth > 0; {
		token, err := decoder.RawToken()
		if err != nil {
			return err
		}
		switch token.(type) {
		case xml.StartElement:
			depth++
		case xml.EndElement:
			depth--
		}
	}
	return nil
}
