import type { BodyReport, MessageReport, RequestDetail } from '../../agent/api/inspection/inspection-reports.ts';
import { outcomeText, ruleTitle, verdictText } from '../../agent/api/inspection/request-text.ts';
import { printable, printableLines } from '../../lib/terminal-text.ts';
import { bytesText, msText } from './request-lines.ts';

type Header = RequestDetail['request']['headers'][number];

export function requestText(detail: RequestDetail, messages: readonly MessageReport[]): string {
  const { id, kind, method, path, http_version, request, response, client, started_at, error, masked } = detail;
  const facts = [
    `request ${id}`,
    new Date(started_at).toLocaleString('sv'),
    ...(client === null ? [] : [`from ${printable(client)}`]),
    durations(detail),
    ...(masked ? ['secrets masked, see --reveal'] : []),
  ];
  return [
    `# ${facts.join(', ')}`,
    ...gatewayLines(detail),
    `${printable(method)} ${printable(path)}${http_version === '' ? '' : ` HTTP/${http_version}`}`,
    ...headerLines(request.headers),
    ...bodyLines(request.body),
    ...headerLines(request.trailers),
    '',
    ...(error === null ? [] : [`# ${printable(error)}`]),
    ...(response === null
      ? [detail.captured ? '# no response' : '# it did not reach the agent']
      : [
          `HTTP/${response.http_version} ${detail.status} ${printable(response.status_text)}`.trimEnd(),
          ...headerLines(response.headers),
          ...bodyLines(response.body),
          ...headerLines(response.trailers),
        ]),
    // The body of an event stream has its events, unless it was cut.
    ...(messages.length === 0 || (kind === 'events' && response?.body?.truncated === false)
      ? []
      : ['', ...messages.map(messageLine)]),
    '',
  ].join('\n');
}

function messageLine({ at, from, type, text, base64, bytes, event, error, truncated }: MessageReport): string {
  const arrow = from === 'client' ? '→' : '←';
  const time = new Date(at).toTimeString().slice(0, 8);
  const name = event !== null && event !== 'message' ? `${printable(event)}: ` : '';
  const shown = error === null ? (text ?? closeText(type, base64) ?? `${type}, ${bytesText(bytes)}`) : `(${error})`;
  return `${time} ${arrow} ${name}${printable(shown)}${truncated && error === null ? '…' : ''}`;
}

/** A close frame has a code of two bytes and a reason. */
function closeText(type: MessageReport['type'], base64: string | null): string | null {
  if (type !== 'close') return null;
  const bytes = Buffer.from(base64 ?? '', 'base64');
  return bytes.length < 2 ? 'close' : `close ${bytes.readUInt16BE()} ${bytes.toString('utf8', 2)}`.trimEnd();
}

function gatewayLines(detail: RequestDetail): string[] {
  const { gateway } = detail;
  if (gateway === null) return [];
  const { path, upstream_path, rules } = gateway;
  const verdict = verdictText(detail);
  return [
    ...(verdict === null ? [] : [`# ${printable(verdict)}`]),
    ...(upstream_path === null || upstream_path === path ? [] : [`# the client asked for ${printable(path)}`]),
    ...rules.map((rule) => {
      const outcome = outcomeText(rule);
      const text = `${ruleTitle(rule)}: ${rule.actions.join(', ')}${outcome === null ? '' : `: ${outcome}`}`;
      return `# ${printable(text)}`;
    }),
  ];
}

function durations({ duration_ms, timing: { waiting_ms } }: RequestDetail): string {
  return waiting_ms === null ? msText(duration_ms) : `${msText(duration_ms)} (waited ${msText(waiting_ms)})`;
}

function headerLines(headers: readonly Header[]): string[] {
  return headers.map(({ name, value }) => `${printable(name)}: ${printable(value)}`);
}

function bodyLines(body: BodyReport | null): string[] {
  if (body === null) return [];
  const { text, bytes, truncated, content_type, error } = body;
  const notes = [
    ...(text === null ? [`# ${printable(content_type ?? 'binary')}, ${bytesText(bytes)}`] : []),
    ...(truncated ? [`# cut: ${bytesText(bytes)} were sent`] : []),
    ...(error === null ? [] : [`# cannot be decoded: ${printable(error)}`]),
  ];
  return ['', ...(text === null ? [] : [printableLines(pretty(text, body))]), ...notes];
}

function pretty(text: string, { content_type, truncated }: BodyReport): string {
  if (truncated || !/[/+]json\b/i.test(content_type ?? '')) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
