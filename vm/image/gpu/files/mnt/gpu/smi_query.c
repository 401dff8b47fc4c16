#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "smi.h"

#define VALUE_MAX 128

static void text(char *to, const char *from) { snprintf(to, VALUE_MAX, "%s", from); }
static void number(char *to, unsigned long long n, const char *form) { snprintf(to, VALUE_MAX, form, n); }

// Each field writes its value. Sizes are in MiB; the unit is added later.
static void f_index(const struct gpu *all, int i, char *to) { (void)all; number(to, (unsigned)i, "%llu"); }
static void f_count(const struct gpu *all, int i, char *to) { (void)i; number(to, (unsigned)gpus(&all), "%llu"); }
static void f_name(const struct gpu *all, int i, char *to) { text(to, all[i].name); }
static void f_uuid(const struct gpu *all, int i, char *to) { gpu_uuid_text(&all[i], to); }
static void f_bus_id(const struct gpu *all, int i, char *to) { smi_bus_id(&all[i], to); }
static void f_domain(const struct gpu *all, int i, char *to) { number(to, all[i].domain, "0x%04llX"); }
static void f_bus(const struct gpu *all, int i, char *to) { number(to, all[i].bus, "0x%02llX"); }
static void f_device(const struct gpu *all, int i, char *to) { number(to, all[i].device, "0x%02llX"); }
static void f_ids(const struct gpu *all, int i, char *to) { number(to, all[i].ids, "0x%08llX"); }
static void f_subsystem(const struct gpu *all, int i, char *to) { number(to, all[i].subsystem, "0x%08llX"); }
static void f_total(const struct gpu *all, int i, char *to) { number(to, all[i].memory >> 20, "%llu"); }
static void f_used(const struct gpu *all, int i, char *to) { number(to, gpu_used(&all[i]) >> 20, "%llu"); }

static void f_free(const struct gpu *all, int i, char *to)
{
	number(to, (all[i].memory - gpu_used(&all[i])) >> 20, "%llu");
}

static void f_capability(const struct gpu *all, int i, char *to)
{
	(void)all;
	(void)i;
	snprintf(to, VALUE_MAX, "%d.%d", GPU_CAPABILITY_MAJOR, GPU_CAPABILITY_MINOR);
}

static void f_mode(const struct gpu *all, int i, char *to) { (void)all; (void)i; text(to, "Default"); }
static void f_mig(const struct gpu *all, int i, char *to) { (void)all; (void)i; text(to, "Disabled"); }

static const struct field {
	const char *name, *other, *unit; // unit is NULL if there is none
	void (*write)(const struct gpu *all, int i, char *to);
} fields[] = {
	{"index", NULL, NULL, f_index},
	{"count", NULL, NULL, f_count},
	{"name", "gpu_name", NULL, f_name},
	{"driver_version", NULL, NULL, f_name},
	{"uuid", "gpu_uuid", NULL, f_uuid},
	{"pci.bus_id", "gpu_bus_id", NULL, f_bus_id},
	{"pci.domain", NULL, NULL, f_domain},
	{"pci.bus", NULL, NULL, f_bus},
	{"pci.device", NULL, NULL, f_device},
	{"pci.device_id", NULL, NULL, f_ids},
	{"pci.sub_device_id", NULL, NULL, f_subsystem},
	{"memory.total", NULL, "MiB", f_total},
	{"memory.used", NULL, "MiB", f_used},
	{"memory.free", NULL, "MiB", f_free},
	{"compute_cap", NULL, NULL, f_capability},
	{"compute_mode", NULL, NULL, f_mode},
	{"mig.mode.current", NULL, NULL, f_mig},
	{"mig.mode.pending", NULL, NULL, f_mig},
};

// Fields that nvidia-smi knows and an emulated GPU has no value for, by their beginnings.
static const char *const without[] = {"serial", "gpu_serial", "timestamp", "vbios_version", "utilization.",
	"temperature.", "power.", "clocks.", "clocks_", "fan.", "ecc.", "pcie.", "pstate", "encoder.", "persistence_mode",
	"display_", "retired_pages.", "memory.reserved", "accounting.", "inforom.", "gom."};

static const struct field *find(const char *name)
{
	static const struct field none = {"", NULL, NULL, NULL};
	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
		if (!strcmp(name, fields[i].name) || (fields[i].other && !strcmp(name, fields[i].other)))
			return &fields[i];
	for (size_t i = 0; i < sizeof without / sizeof *without; i++)
		if (!strncmp(name, without[i], strlen(without[i])))
			return &none;
	return NULL;
}

static bool has(const char *list, const char *word)
{
	size_t n = strlen(word);
	for (const char *at = list; (at = strstr(at, word)); at += n)
		if ((at == list || at[-1] == ',') && (!at[n] || at[n] == ','))
			return true;
	return false;
}

#define COLUMNS 64

int smi_query(const char *list, const char *format, int only)
{
	const struct field *column[COLUMNS];
	char *names[COLUMNS], *rest = NULL, *copy = strdup(list);
	int columns = 0;
	if (!has(format, "csv")) {
		printf("\"--format=\" switch is missing. It has to be specified, e.g. --format=csv\n");
		free(copy);
		return 1;
	}
	for (char *w = copy ? strtok_r(copy, ", ", &rest) : NULL; w && columns < COLUMNS; w = strtok_r(NULL, ", ", &rest)) {
		names[columns] = w;
		column[columns] = find(w);
		if (!column[columns++]) {
			printf("Field \"%s\" is not a valid field to query.\n", w);
			free(copy);
			return 2;
		}
	}
	bool units = !has(format, "nounits");
	for (int c = 0; c < columns && !has(format, "noheader"); c++) {
		const char *unit = units ? column[c]->unit : NULL;
		printf("%s%s%s%s%s", c ? ", " : "", names[c], unit ? " [" : "", unit ? unit : "", unit ? "]" : "");
		if (c == columns - 1)
			printf("\n");
	}
	const struct gpu *g;
	int n = gpus(&g), status = 0;
	for (int i = 0; i < n; i++) {
		if (only >= 0 && i != only)
			continue;
		bool gone = gpu_lost(&g[i]);
		status = gone ? SMI_LOST : status;
		for (int c = 0; c < columns; c++) {
			char value[VALUE_MAX] = "[N/A]";
			if (gone)
				strcpy(value, "[GPU is lost]");
			else if (column[c]->write)
				column[c]->write(g, i, value);
			printf("%s%s", c ? ", " : "", value);
			if (!gone && units && column[c]->unit)
				printf(" %s", column[c]->unit);
		}
		printf("\n");
	}
	free(copy);
	return status;
}

static void line(int depth, const char *name, const char *value)
{
	printf("%*s%-*s: %s\n", 4 * depth, "", 42 - 4 * depth, name, value);
}

int smi_details(int only)
{
	static const struct {
		const char *section, *name, *field;
	} lines[] = {
		{NULL, "Product Name", "name"}, {"MIG Mode", "Current", "mig.mode.current"},
		{"MIG Mode", "Pending", "mig.mode.pending"}, {NULL, "GPU UUID", "uuid"}, {NULL, "Minor Number", NULL},
		{"PCI", "Bus", "pci.bus"}, {"PCI", "Device", "pci.device"}, {"PCI", "Domain", "pci.domain"},
		{"PCI", "Device Id", "pci.device_id"}, {"PCI", "Bus Id", "pci.bus_id"},
		{"PCI", "Sub System Id", "pci.sub_device_id"},
		{"FB Memory Usage", "Total", "memory.total"}, {"FB Memory Usage", "Used", "memory.used"},
		{"FB Memory Usage", "Free", "memory.free"}, {"BAR1 Memory Usage", "Total", "memory.total"},
		{"BAR1 Memory Usage", "Used", "memory.used"}, {"BAR1 Memory Usage", "Free", "memory.free"},
		{NULL, "Compute Mode", "compute_mode"},
	};
	const struct gpu *g;
	char value[VALUE_MAX];
	int n = gpus(&g), status = 0;
	printf("\n==============NVSMI LOG==============\n\n");
	line(0, "Driver Version", GPU_NAME);
	number(value, (unsigned)n, "%llu");
	line(0, "Attached GPUs", value);
	for (int i = 0; i < n; i++) {
		if (only >= 0 && i != only)
			continue;
		if (smi_lost(g, i)) {
			status = SMI_LOST;
			continue;
		}
		smi_bus_id(&g[i], value);
		printf("GPU %s\n", value);
		const char *section = NULL;
		for (size_t l = 0; l < sizeof lines / sizeof *lines; l++) {
			if (lines[l].section && (!section || strcmp(section, lines[l].section)))
				printf("    %s\n", lines[l].section);
			section = lines[l].section;
			const struct field *f = lines[l].field ? find(lines[l].field) : NULL;
			if (f)
				f->write(g, i, value);
			else
				number(value, g[i].minor, "%llu");
			if (f && f->unit)
				snprintf(value + strlen(value), sizeof value - strlen(value), " %s", f->unit);
			line(section ? 2 : 1, lines[l].name, value);
		}
		if (g[i].numa >= 0)
			number(value, (unsigned)g[i].numa, "%llu");
		else
			text(value, "N/A");
		line(1, "NUMA Node of the PCI bus", value);
	}
	return status;
}
