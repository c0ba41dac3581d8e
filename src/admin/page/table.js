// Tables, which a narrow column shows as cards: one a row, each value below or beside the title of its column.

import { h } from './dom.js';

/**
 * Returns a table. A column is [title, cell of a row, class]; the first one names the row. `options` has the `style` of the
 * table, and `key`, which returns the identity of a row.
 */
export function table(caption, columns, rows, { style = null, key = () => undefined } = {}) {
  const cell = (row, [title, value, cellStyle], index) => (index === 0
    ? h('th', { scope: 'row', role: 'rowheader', class: cellStyle, 'data-title': title }, value(row))
    : h('td', { role: 'cell', class: cellStyle, 'data-title': title }, value(row)));
  // The roles stay where a style sheet makes cards of the rows.
  return h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': caption },
    h('table', { role: 'table', class: style },
      h('caption', {}, caption),
      h('thead', { role: 'rowgroup' }, h('tr', { role: 'row' },
        columns.map(([title, , cellStyle]) => h('th', { scope: 'col', role: 'columnheader', class: cellStyle }, title)))),
      h('tbody', { role: 'rowgroup' }, rows.map((row) => h('tr', { role: 'row', key: key(row) },
        columns.map((column, index) => cell(row, column, index)))))));
}
