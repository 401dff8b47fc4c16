// The figures of all tables as CSV: one line for each value that was measured. They are in the page once, and a link to them is made here.
const place = document.getElementById('figures-csv');
if (place) {
  const field = text => /[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
  const lines = [['client', 'server', 'test', 'bytes', 'metric', 'unit', 'value']];
  for (const table of document.querySelectorAll('table.figures')) {
    const heads = [...table.tHead.rows[0].cells];
    for (const row of table.tBodies[0].rows) {
      [...row.cells].forEach((cell, i) => {
        const {metric, unit} = heads[i].dataset, {values} = cell.dataset;
        if (values === undefined) return;
        cell.dataset.v ??= values; // a single one: rows are sorted by it
        for (const value of values.split(' ')) {
          lines.push([row.dataset.client, row.dataset.server, table.dataset.test, row.dataset.bytes, metric, unit, value]);
        }
      });
    }
  }
  const link = document.createElement('a');
  link.className = 'download';
  link.download = place.dataset.name;
  link.href = 'data:text/csv;charset=utf-8,' + encodeURIComponent(lines.map(l => l.map(field).join(',') + '\n').join(''));
  link.textContent = 'Download as CSV';
  place.prepend(link, ' ');
  place.hidden = false;
}
