package cmdline

import "strings"

// GRUBSnippet returns shell code for grub-mkconfig to read after its other settings: it takes other
// values of args off GRUB_CMDLINE_LINUX and GRUB_CMDLINE_LINUX_DEFAULT, and puts args at the end of
// the first. To read it twice is to read it once. args have passed [Check].
func GRUBSnippet(args []string) string {
	var pattern, sizes []string
	for _, key := range Keys(args) {
		if !isPages(key) {
			pattern = append(pattern, key, key+"=*")
		}
	}
	for _, arg := range args {
		if size, ok := strings.CutPrefix(arg, pageSize+"="); ok {
			sizes = append(sizes, size)
		}
	}
	var cases strings.Builder
	if len(sizes) > 0 {
		// A count of pages belongs to the size before it.
		cases.WriteString("    hugepagesz=*) _size=${_word#*=} ;;\n    esac\n    case $_word in\n")
		cases.WriteString("    hugepagesz=* | hugepages=*) case $_size in '' | " + strings.Join(sizes, " | ") +
			") continue ;; esac ;;\n")
	}
	if len(pattern) > 0 {
		cases.WriteString("    " + strings.Join(pattern, " | ") + ") continue ;;\n")
	}
	clean := func(variable string) string {
		return "_rackless='' _size=''\nfor _word in ${" + variable + "-}; do\n    case $_word in\n" + cases.String() +
			"    esac\n    _rackless=\"$_rackless${_rackless:+ }$_word\"\ndone\n" + variable + "=$_rackless\n"
	}
	return "# Other values of the same arguments go first: of two isolcpus= the kernel takes the first, of two " +
		"hugepagesz= it refuses the second.\n" +
		"set -f\n" + clean("GRUB_CMDLINE_LINUX") + clean("GRUB_CMDLINE_LINUX_DEFAULT") +
		"set +f\nunset _rackless _size _word\n\n" +
		"GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX${GRUB_CMDLINE_LINUX:+ }\"'" + strings.Join(args, " ") + "'\n"
}
