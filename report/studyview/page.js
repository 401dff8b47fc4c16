// Two runs side by side: of the table of all runs, any two that the reader picks. Without script there is the table.
const runs = document.getElementById('runs'), two = document.getElementById('two-runs');
if (runs && two && runs.tBodies[0].rows.length > 1) {
  const heads = [...runs.tHead.rows[0].cells].map(c => c.textContent);
  const rows = [...runs.tBodies[0].rows]; // in the order of time, however the table is sorted later
  const [a, b] = two.querySelectorAll('select'), body = two.querySelector('tbody');
  for (const select of [a, b]) {
    for (const [i, row] of rows.entries()) {
      const about = [...row.cells].filter(c => c.dataset.about !== undefined).map(c => c.textContent);
      select.add(new Option(row.cells[0].textContent + ': ' + about.join(', '), i));
    }
  }
  const show = () => {
    const left = rows[a.value].cells, right = rows[b.value].cells;
    body.replaceChildren();
    heads.forEach((head, i) => {
      if (!left[i].textContent && !right[i].textContent) return;
      const row = body.insertRow();
      const name = document.createElement('th');
      name.scope = 'row';
      name.textContent = head;
      row.append(name);
      for (const cell of [left[i], right[i]]) {
        const c = row.insertCell();
        c.textContent = cell.textContent || '–';
        c.className = 'n';
      }
      const x = parseFloat(left[i].dataset.v), y = parseFloat(right[i].dataset.v);
      const difference = row.insertCell();
      difference.className = 'n';
      if (x > 0 && y > 0) difference.textContent = (y >= x ? '+' : '\u2212') + Math.abs(100 * (y / x - 1)).toFixed(1) + '%';
    });
  };
  b.selectedIndex = 1;
  for (const select of [a, b]) select.addEventListener('change', show);
  show();
  two.hidden = false;
}
