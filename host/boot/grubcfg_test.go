package boot

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// grubMenu is synthetic, with the constructs that grub-mkconfig 2.06 and 2.12, os-prober and users write.
const grubMenu = `# DO NOT EDIT
### BEGIN /etc/grub.d/00_header ###
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
   set next_entry=
else
   set default="0"
fi
function savedefault {
  if [ -z "${boot_once}" ]; then
    saved_entry="${chosen}"
    save_env saved_entry; linux /not/an/entry
  fi
}
set root='hd0,msdos1'
menuentry 'Debian GNU/Linux' --class debian --class os $menuentry_id_option 'gnulinux-simple-1' {
	load_video
	if [ x$grub_platform = xxen ]; then insmod xzio; insmod lzopio; fi
	echo	'Loading Linux 6.1 {...'
	linux	/vmlinuz-6.1 root=UUID=1 ro dyndbg="file a.c +p" it\'s 'one word' ${extra} # not a word
	initrd	/ucode.img /initrd.img-6.1
}
submenu "Advanced \"options\"" $menuentry_id_option 'advanced' {
	menuentry 'It'\''s old' --id=old --users "" --unrestricted {
		linux16 /vmlinuz-5 root=UUID=1 \
			single
	}
	submenu 'deeper' { menuentry 'a' { linux /a ; } ; menuentry 'b' --hotkey b { linuxefi (hd0,gpt2)/b x ; ` +
	`initrdefi /c ; } ; }
}
menuentry 'Windows' --class windows $menuentry_id_option 'osprober-efi-1' {
	chainloader /EFI/Microsoft/Boot/bootmgfw.efi
}
`

func parsed(t testing.TB, text string) *menu {
	t.Helper()
	m, err := parseMenu(text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestAMenuIsRead(t *testing.T) {
	t.Parallel()
	got := parsed(t, grubMenu)
	want := &menu{
		defaults: []string{"${next_entry}", "0"},
		entries: []*menuEntry{
			{title: "Debian GNU/Linux", id: "gnulinux-simple-1", kernel: "/vmlinuz-6.1",
				line:   `root=UUID=1 ro "dyndbg=file a.c +p" it's "one word" ${extra}`,
				initrd: []string{"/ucode.img", "/initrd.img-6.1"}},
			{title: `Advanced "options"`, id: "advanced", submenu: true, sub: []*menuEntry{
				{title: "It's old", id: "old", kernel: "/vmlinuz-5", line: "root=UUID=1 single"},
				{title: "deeper", submenu: true, sub: []*menuEntry{
					{title: "a", kernel: "/a"},
					{title: "b", kernel: "(hd0,gpt2)/b", line: "x", initrd: []string{"/c"}},
				}},
			}},
			{title: "Windows", id: "osprober-efi-1"},
		},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(menu{}, menuEntry{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestTheDefaultEntryIsFoundAsGRUBFindsIt(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, set, saved, want string }{
		{"a number", "0", "", "Debian GNU/Linux"},
		{"a number in a submenu", "1>1>1", "", "b"},
		{"a title", "Windows", "", "Windows"},
		{"an identifier", "gnulinux-simple-1", "", "Debian GNU/Linux"},
		{"identifiers in submenus", "advanced>old", "", "It's old"},
		{"a submenu is its first entry", "advanced", "", "It's old"},
		{"what was saved", "${saved_entry}", "osprober-efi-1", "Windows"},
		{"nothing was saved", "${saved_entry}", "", "Debian GNU/Linux"},
		{"no such entry", "Solaris", "", "Debian GNU/Linux"},
		{"no such entry in a submenu", "advanced>9", "", "Debian GNU/Linux"},
		{"no such number", "7", "", "Debian GNU/Linux"},
		{"a number below zero", "-1", "", "Debian GNU/Linux"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := parsed(t, strings.Replace(grubMenu, `default="0"`, `default="`+tt.set+`"`, 1))
			if e := m.defaultEntry(tt.saved); e == nil || e.title != tt.want {
				t.Errorf("got %v; want %q", e, tt.want)
			}
		})
	}
	if e := parsed(t, "submenu x { }").defaultEntry(""); e != nil {
		t.Errorf("an empty menu has a default entry: %v", e)
	}
	windows := strings.Replace(grubMenu, `default="0"`, `default="Windows"`, 1)
	if e := parsed(t, windows).ours(""); e.title != "Debian GNU/Linux" {
		t.Errorf("where Windows is started, the entry for Linux is %v", e)
	}
	if e := parsed(t, "set default=0\nblscfg\n"); !e.bls || e.ours("") != nil {
		t.Errorf("got %+v", e)
	}
}

func TestAMenuThatIsDamagedIsAnError(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"menuentry 'a' {\n linux /x\n": `a "{" without its "}"`,
		"menuentry 'a' {\n } }\n":      `a "}" without its "{"`,
		"\n\nset x='a":                 "line 3: a quote that never ends",
		"set x='a\nb'\nset y=\"a\n":    "line 3: a quote that never ends",
	} {
		if _, err := parseMenu(text); err == nil || err.Error() != want {
			t.Errorf("%q: %v; want %s", text, err, want)
		}
	}
}

func FuzzParseMenu(f *testing.F) {
	for _, text := range []string{grubMenu, "", "{", "}", "menuentry", "menuentry {}", `"\`, "a\\",
		"submenu x { submenu y { } }", "set default=1>", "menuentry x --id", "# {"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := parseMenu(text)
		if err != nil {
			return
		}
		for _, saved := range []string{"", "0", "1>0", "x"} {
			if e := m.defaultEntry(saved); e != nil && e.submenu {
				t.Fatalf("%q: a submenu is no entry to start", text)
			}
		}
		if e := m.ours(""); e != nil && e.kernel == "" {
			t.Fatalf("%q: %v starts no Linux", text, e)
		}
		if again := stripMenu(stripMenu(text, planArgs), planArgs); again != stripMenu(text, planArgs) {
			t.Fatalf("stripped twice it is %q", again)
		}
	})
}

func FuzzGrubDefaults(f *testing.F) {
	for _, text := range []string{debianDefaults, "", "GRUB_CMDLINE_LINUX=", "GRUB_CMDLINE_LINUX=quiet # x\n",
		"export GRUB_CMDLINE_LINUX='a\"b'", "GRUB_CMDLINE_LINUX=\"a\\\nb\"", "GRUB_CMDLINE_LINUX=\"'x'\"\r\n",
		"GRUB_CMDLINE_LINUX=\"a\"\"b\""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		edited, err := editGrubDefaults(text, planArgs)
		if err != nil {
			return
		}
		again, err := editGrubDefaults(edited, planArgs)
		if err != nil || again != edited {
			t.Fatalf("%v: %q became %q, and then %q", err, text, edited, again)
		}
		if undone, err := undoGrubDefaults(edited, text, planArgs); err != nil || undone != text {
			t.Fatalf("%v: %q became %q, and then %q", err, text, edited, undone)
		}
	})
}

func TestSettingsOfGRUBAreEdited(t *testing.T) {
	t.Parallel()
	args := []string{"iommu=pt", "isolcpus=2"}
	tests := []struct{ name, text, want string }{
		{"no settings", "", "GRUB_CMDLINE_LINUX=\"iommu=pt isolcpus=2\"\n"},
		{"no end of line", "GRUB_TIMEOUT=1", "GRUB_TIMEOUT=1\nGRUB_CMDLINE_LINUX=\"iommu=pt isolcpus=2\"\n"},
		{"an empty value", "GRUB_CMDLINE_LINUX=\nx=1\n", "GRUB_CMDLINE_LINUX=\"iommu=pt isolcpus=2\"\nx=1\n"},
		{"without quotes", "GRUB_CMDLINE_LINUX=quiet # as it is\n",
			"GRUB_CMDLINE_LINUX=\"quiet iommu=pt isolcpus=2\" # as it is\n"},
		{"in single quotes", "export GRUB_CMDLINE_LINUX='a=\"$b\"'\n",
			"export GRUB_CMDLINE_LINUX='a=\"$b\" iommu=pt isolcpus=2'\n"},
		{"single quotes in double quotes", "GRUB_CMDLINE_LINUX=\"it's\"\r\n",
			"GRUB_CMDLINE_LINUX=\"it's iommu=pt isolcpus=2\"\r\n"},
		{"the last of two counts", "GRUB_CMDLINE_LINUX=\"a\"\nGRUB_CMDLINE_LINUX=\"b\"\n",
			"GRUB_CMDLINE_LINUX=\"a\"\nGRUB_CMDLINE_LINUX=\"b iommu=pt isolcpus=2\"\n"},
		{"a comment is none", "#GRUB_CMDLINE_LINUX=\"a\"\n",
			"#GRUB_CMDLINE_LINUX=\"a\"\nGRUB_CMDLINE_LINUX=\"iommu=pt isolcpus=2\"\n"},
		{"another value in the other variable",
			"GRUB_CMDLINE_LINUX_DEFAULT=\"quiet isolcpus=7\"\nGRUB_CMDLINE_LINUX=\"\"\n",
			"GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\nGRUB_CMDLINE_LINUX=\"iommu=pt isolcpus=2\"\n"},
		{"the other variable is enough", "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet iommu=pt isolcpus=2\"\n",
			"GRUB_CMDLINE_LINUX_DEFAULT=\"quiet iommu=pt isolcpus=2\"\n"},
		{"variables of Xen are others", "GRUB_CMDLINE_LINUX_XEN_REPLACE=\"$x\"\n",
			"GRUB_CMDLINE_LINUX_XEN_REPLACE=\"$x\"\nGRUB_CMDLINE_LINUX=\"iommu=pt isolcpus=2\"\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := editGrubDefaults(tt.text, args)
			if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
			if back, err := undoGrubDefaults(got, tt.text, args); err != nil || back != tt.text {
				t.Errorf("undone: %q, %v", back, err)
			}
		})
	}
	for _, text := range []string{"GRUB_CMDLINE_LINUX=\"a \\\"b\\\"\"", "GRUB_CMDLINE_LINUX=\"`x`\"",
		"GRUB_CMDLINE_LINUX=\"$x\"", "GRUB_CMDLINE_LINUX=\"a\nb\"", "GRUB_CMDLINE_LINUX=a b",
		"GRUB_CMDLINE_LINUX=\"a\"b", "GRUB_CMDLINE_LINUX=\"a\"; reboot"} {
		if got, err := editGrubDefaults(text, args); err == nil {
			t.Errorf("%q became %q; only a shell can read it", text, got)
		}
	}
}
