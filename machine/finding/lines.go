package finding

import (
	"math/bits"
	"regexp"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
)

// own lists lines whose codes are of one table. Such a line is hidden from the other forms.
var own = []struct {
	line   func() *regexp.Regexp
	number func() *regexp.Regexp // groups are numbers of the kinds
	base   int                   // without 0x; 0 means 10
	kinds  []string
}{
	// An mlx5 health report has numbers on each line.
	{line: lazyregexp.New(`print_health_info|\bhealth synd|(?:^|: )synd 0x[0-9a-f]+: [A-Za-z]`),
		number: lazyregexp.New(`(?:^|[^_a-z])(?i:synd(?:r(?:ome?)?)?)[ :=]*` + codeNumber),
		kinds:  []string{HealthSyndrome}},
	{line: lazyregexp.New(`Fatal error \d+ detected`), number: lazyregexp.New(`Fatal error (\d+)`),
		kinds: []string{HealthSensor}},
	{line: lazyregexp.New(`query_mcia|\bMCIA status`), number: lazyregexp.New(`status[ :=]*` + codeNumber),
		kinds: []string{MCIAStatus}},
	{line: lazyregexp.New(`RDMA_CM_EVENT_REJECTED|\bCM rejection`), number: lazyregexp.New(
		`(?i)(?:status|reason|error|rejection)[ :=(]*` + codeNumber), kinds: []string{CMRejection}},
	{line: lazyregexp.New(`NVRM: .*Xid|^Xids? |\bXid \(`), number: lazyregexp.New(`(?i)\bXids?\b` +
		`(?: errors?| codes?| number)?[ :=#]*(?:\([^)]*\)[ :]*)?` + codeNumber), kinds: []string{Xid}},
	{line: lazyregexp.New(`\bhwrm req_type|\bHWRM error\b`), number: lazyregexp.New(`(?i)\berror[ :=]*` + codeNumber),
		kinds: []string{HWRMError}},
	{line: lazyregexp.New(`\bQPLIB:`)}, // Broadcom publishes no list
	{line: lazyregexp.New(`(?i:\[fault reason|DMAR fault)`),
		number: lazyregexp.New(`(?i)fault reason (?:0x)?([0-9a-f]+)`), base: 16, kinds: []string{DMARReason}},
	{line: lazyregexp.New(`NET/OFI|\befa[_:]|\bEFA\b|\bEFA status\b`), number: lazyregexp.New(`(?i:prov_err(?:no)?: ?` +
		`[^(\n\d]*\(?|\bError: |\bEFA status[ :=]*)(?:4[01]\d\d[^\d]|(\d+)\b)`), kinds: []string{EFAStatus}},
	{line: lazyregexp.New(`/\d+: QP \d+ error: `), number: lazyregexp.New(`\((0x[0-9a-f]+) 0x[0-9a-f]+ 0x[0-9a-f]+\)`),
		kinds: []string{VendorError}},
	// DevX commands return the firmware's status; the syndrome is a place in the firmware.
	{line: lazyregexp.New(`(?i:\bdevx\b).*\bstatus=`), number: lazyregexp.New(`\bstatus=` + codeNumber),
		kinds: []string{CommandStatus}},
}

// foreign matches ends of programs, errors of other interfaces, and -1 of a driver that says no more.
var foreign = lazyregexp.New(`(?i)\bexit(?:ed)?(?: with)?(?: exit)? (?:status|code|error)[ :=]*\d+|` +
	`\b(?:http|return) (?:status|code|error)[ :=]*\d+|` +
	`\b(?:cuda|hip[a-z]|ncclresult|nccl error|rccl error)[^\n]{0,60}?\b(?:error|status|code|failure)[ :=]*\d+|` +
	`\b(?:mad|madrpc|mad_rpc|osm_\w+|opensm)\b[^\n]{0,60}?\bstatus[ :=]*(?:0x)?[0-9a-f]+|` +
	`\bprobe [^\n]*failed with error -1\b`)

var devxSyndrome = lazyregexp.New(`(?i)\bsyndrome[ :=(]*0x[0-9a-f]+`)

// In a driverLine only negative numbers are codes: errno.
var driverLine = lazyregexp.New(`(?:^|[\s\]])([a-z][\w-]*) (?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]` +
	`(?: [\w.-]+)?: `)

var positive = lazyregexp.New(`(?i)\b(?:status|error|err|syndrome)[ :=(]*(?:0x)?[0-9a-f]+\b`)

// ownLines returns the text without these lines and without foreign numbers.
func (f *found) ownLines(text string) string {
	var rest strings.Builder
	severity := ""
	for line := range strings.Lines(text) {
		if m := aerSeverity().FindStringSubmatch(line); m != nil {
			severity = Uncorrected
			if strings.HasPrefix(m[1], "C") || strings.HasPrefix(m[1], "c") {
				severity = Corrected
			}
		}
		if m := aerStatus().FindStringSubmatch(line); m != nil {
			f.aerBits(m[1]+m[2], severity)
			continue
		}
		if f.ownLine(line) {
			continue
		}
		line = foreign().ReplaceAllString(line, " ; ")
		if strings.Contains(strings.ToLower(line), "devx") {
			line = devxSyndrome().ReplaceAllString(line, " ; ")
		}
		if m := driverLine().FindStringSubmatch(line); m != nil && !(strings.HasPrefix(m[1], "mlx") &&
			strings.Contains(strings.ToLower(line), "cqe")) {
			line = positive().ReplaceAllString(line, " ; ")
		}
		rest.WriteString(line)
	}
	return rest.String()
}

func (f *found) ownLine(line string) bool {
	for _, o := range own {
		if !o.line().MatchString(line) {
			continue
		}
		if o.number != nil {
			for _, m := range o.number().FindAllStringSubmatch(line, -1) {
				for i, kind := range o.kinds {
					f.number(kind, m[i+1], o.base)
				}
			}
		}
		if len(o.kinds) == 1 && o.kinds[0] == VendorError {
			f.words(line, false)
		}
		return true
	}
	return false
}

var (
	aerSeverity = lazyregexp.New(`severity=((?i:un)?[Cc]orrect)|AER: .*?\b((?i:un)?[Cc]orrect)`)
	aerStatus   = lazyregexp.New(`error status/mask=([0-9a-f]{8})/|aer_status: 0x([0-9a-f]{8})`)
)

// The kernel prints the severity above the register, which may be either one without it.
func (f *found) aerBits(digits, severity string) {
	status, err := strconv.ParseUint(digits, 16, 32)
	for ; err == nil && status != 0; status &= status - 1 {
		bit := strconv.Itoa(bits.TrailingZeros64(status))
		for _, kind := range []string{Corrected, Uncorrected} {
			if severity == "" || severity == kind {
				f.number(kind, bit, 10)
			}
		}
	}
}
