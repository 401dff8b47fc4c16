// Tables sort by the column whose head is pressed. Without script they are read in the order in which they were written.
for (const table of document.querySelectorAll('table.sort')) {
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  const value = (row, i) => row.cells[i].dataset.v ?? row.cells[i].textContent.trim();
  heads.forEach((head, i) => {
    const button = document.createElement('button');
    button.type = 'button';
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener('click', () => {
      const down = head.getAttribute('aria-sort') === 'ascending';
      for (const other of heads) other.removeAttribute('aria-sort');
      head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
      const numbers = head.classList.contains('n') || head.dataset.sort === 'n';
      const rows = [...body.rows].sort((a, b) => {
        const x = value(a, i), y = value(b, i);
        if (x === '' || y === '') return (x === '') - (y === ''); // what is missing comes last, whatever the order
        const order = numbers ? x - y : x.localeCompare(y, 'en', {numeric: true});
        return down ? -order : order;
      });
      body.append(...rows);
    });
  });
}
