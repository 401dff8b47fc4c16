package vhpc

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rackless/rackless/internal/words"
)

// maxScript is the longest script that a lab file takes, with what is added here.
const maxScript = 7 << 10

// setupOf returns the scripts of a machine as the steps of a node; "" for none. Those that cannot be read go into a
// comment.
func (c *cluster) setupOf(comments *strings.Builder, m machine) string {
	var steps []string
	for _, k := range slices.Sorted(maps.Keys(m.keys)) {
		if !strings.HasPrefix(k, "script") || m.keys[k] == "" {
			continue
		}
		for path := range strings.SplitSeq(m.keys[k], "\n") {
			text, err := c.read(path)
			switch {
			case err != nil:
			case !utf8.Valid(text):
				err = errors.New("not a text in UTF-8")
			case len(text) > maxScript:
				err = fmt.Errorf("longer than %d KiB: copy it into the template", maxScript>>10)
			default:
				steps = append(steps, step(path, string(text)))
			}
			if err != nil {
				fmt.Fprintf(comments, "# Script %s of %s is not carried: %s.\n", words.OneLine(path),
					words.OneLine(m.name), words.OneLine(err.Error()))
			}
		}
	}
	if len(steps) == 0 {
		return ""
	}
	return quoted(steps)
}

// step returns what a node runs for a script. One that names its interpreter is a file in the guest for a moment.
func step(path, text string) string {
	title := "# " + words.OneLine(path) + "\n"
	if !strings.HasPrefix(text, "#!") {
		return title + text
	}
	return title + `f=$(mktemp) && cat >"$f" <<'END_OF_SCRIPT' && chmod +x "$f" && "$f"; s=$?; rm -f "$f"; exit $s` +
		"\n" + strings.TrimSuffix(text, "\n") + "\nEND_OF_SCRIPT\n"
}

// customizeOf writes what the guests of machines are told about themselves, and returns the keys that it is made of;
// none where it would not be all that the file says.
func customizeOf(machines []machine) (text string, told []string) {
	told = []string{"ip", "is_dhcp", "netmask", "gateway", "domain", "dns"}
	first := machines[0].keys
	if first["domain"] == "" || slices.ContainsFunc(told[1:], func(k string) bool { return !all(machines, k) }) {
		return "", nil
	}
	keys := []string{"domain: " + strconv.Quote(first["domain"])}
	if !on(first["is_dhcp"]) {
		var addresses []string
		length, ok := prefixLength(first["netmask"])
		for _, m := range machines {
			a, err := netip.ParseAddr(m.keys["ip"])
			ok = ok && err == nil && a.Is4()
			addresses = append(addresses, fmt.Sprintf("%s/%d", a, length))
		}
		if !ok {
			return "", nil
		}
		keys = append(keys, "address: ["+strings.Join(addresses, ", ")+"]")
		if first["gateway"] != "" {
			keys = append(keys, "gateway: "+strconv.Quote(first["gateway"]))
		}
	}
	if dns := items(first["dns"]); len(dns) > 0 {
		keys = append(keys, "dns: "+quoted(dns))
	}
	return "  customize: {" + strings.Join(keys, ", ") + "}\n", told
}

// loginOf says where the login of guests belongs, and returns the keys that this tells: no password is written.
func loginOf(machines []machine) (comment string, told []string) {
	users := map[string]bool{}
	for _, m := range machines {
		for k, v := range m.keys {
			if v != "" && (strings.HasPrefix(k, "guest_user") || strings.HasPrefix(k, "script")) {
				users[cmp.Or(words.OneLine(m.keys["guest_username"]), "root")] = true // the toolkit's user
			}
		}
	}
	user := "USER"
	switch len(users) {
	case 0:
		return "", nil
	case 1:
		told = []string{"guest_username"}
		user = slices.Collect(maps.Keys(users))[0]
	}
	return "# setup and rackless exec log in to guests by GOVC_GUEST_LOGIN=" + user + ":PASSWORD, in the environment " +
		"or in\n# ~/.config/rackless/vsphere (mode 0600), never in this file.\n", told
}

// prefixLength returns the length of a subnet by its mask.
func prefixLength(mask string) (int, bool) {
	a, err := netip.ParseAddr(mask)
	if err != nil || !a.Is4() {
		return 0, false
	}
	ones, size := net.IPMask(a.AsSlice()).Size()
	return ones, size == 32
}
