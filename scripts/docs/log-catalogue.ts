import { FIELDS } from './log-fields.ts';
import { logCalls } from './log-messages.ts';
import { REMEDIES } from './log-remedies.ts';
import { table } from './markdown.ts';

const LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace'];

/** The catalogue of log messages in docs/operations.md, the most severe first. */
export function logCatalogue(): string {
  const calls = logCalls('src');
  const messages = [...new Set(calls.flatMap((call) => call.messages.map((message) => `${call.level} ${message}`)))];
  const rows = messages.map((entry) => {
    const [level = ''] = entry.split(' ', 1);
    const message = entry.slice(level.length + 1);
    const same = calls.filter((call) => call.level === level && call.messages.includes(message));
    const fields = [...new Set(same.flatMap((call) => call.fields))].map((field) => `\`${field}\``);
    return { level, cells: [`\`${message}\``, level, fields.join(', '), REMEDIES[message] ?? '–'] };
  });
  rows.sort((a, b) => LEVELS.indexOf(a.level) - LEVELS.indexOf(b.level) || compare(a.cells[0], b.cells[0]));
  const used = new Set(calls.flatMap(({ fields }) => fields));
  const fields = Object.entries(FIELDS).filter(([name]) => used.has(name));
  return [
    table(
      ['Message', 'Level', 'Fields', 'What to do'],
      rows.map(({ cells }) => cells),
    ),
    table(
      ['Field', 'Meaning'],
      fields.map(([name, meaning]) => [`\`${name}\``, meaning]),
    ),
  ].join('\n\n');
}

const compare = (a = '', b = ''): number => (a < b ? -1 : 1);
