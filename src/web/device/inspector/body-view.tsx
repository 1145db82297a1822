import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import type { BodyReport } from '../../../agent/api/inspection/inspection-reports.ts';
import { byteSize } from '../../ui/byte-size.ts';

/** More text is shown on demand; in characters. */
const MAX_SHOWN = 32 * 1024;
/** The types that the agent serves as they are. */
const IMAGE = /^image\/(?:png|jpeg|gif|webp|avif)\b/i;

/**
 * A body: JSON indented, a form as a table, text, or an image.
 *
 * @param href of the raw body
 */
export function BodyView({ body, href }: { body: BodyReport; href: string }): JSX.Element {
  const { bytes, decoded_bytes: decoded, content_type: type, content_encoding: encoding, truncated, error } = body;
  const [sent, whole] = [byteSize(bytes), byteSize(decoded)];
  const facts = [type, sent === whole ? sent : `${sent}, ${whole} decoded`, encoding && `${encoding} removed`];
  return (
    <div class="body">
      <div class="body-head">
        <p class="hint">{facts.filter(Boolean).join(' · ')}</p>
        <a href={href} download>
          Download
        </a>
      </div>
      {error !== null && <p class="reason">Not decoded: {error}. This is what was sent.</p>}
      {truncated && <p class="reason">Only its beginning was captured.</p>}
      <Content body={body} href={href} />
    </div>
  );
}

function Content({ body, href }: { body: BodyReport; href: string }): JSX.Element {
  const { content_type: type, text: content } = body;
  if (content === null) {
    // From the agent, as the content security policy allows images of this site only.
    if (IMAGE.test(type ?? '') && !body.truncated) {
      // biome-ignore lint/a11y/noRedundantAlt: it is all that is known of a captured image
      return <img class="body-image" src={href} alt="Image" />;
    }
    return <p class="hint">Binary data.</p>;
  }
  if (/^application\/x-www-form-urlencoded\b/i.test(type ?? '')) return <FormTable content={content} />;
  return <LongText content={content} />;
}

function LongText({ content }: { content: string }): JSX.Element {
  const isWhole = useSignal(false);
  const pretty = useMemo(() => indentedJson(content), [content]);
  const isLong = pretty.length > MAX_SHOWN && !isWhole.value;
  return (
    <>
      <pre tabindex={0} class="body-text">
        {isLong ? pretty.slice(0, MAX_SHOWN) : pretty}
      </pre>
      {isLong && (
        <button
          type="button"
          class="link"
          onClick={() => {
            isWhole.value = true;
          }}
        >
          Show all {byteSize(pretty.length)}
        </button>
      )}
    </>
  );
}

function FormTable({ content }: { content: string }): JSX.Element {
  const pairs = [...new URLSearchParams(content)];
  return (
    <table class="pairs">
      <thead class="visually-hidden">
        <tr>
          <th>Name</th>
          <th>Value</th>
        </tr>
      </thead>
      <tbody>
        {pairs.map(([name, value], at) => (
          <tr key={at}>
            <th scope="row">{name}</th>
            <td>{value}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** A string, a bracket, a comma or colon, or anything else up to the next of them. */
const TOKEN = /"(?:\\.|[^"\\])*"|[{}[\],:]|[^\s{}[\],:"]+/g;

/** JSON with line breaks and indentation; all else is as it was sent, also numbers too large for JavaScript. Other text stays. */
export function indentedJson(text: string): string {
  if (!/^\s*[[{]/.test(text) || !isJson(text)) return text;
  const parts: string[] = [];
  let depth = 0;
  const newLine = () => `\n${'  '.repeat(depth)}`;
  let before = '';
  for (const token of text.match(TOKEN) ?? []) {
    const isClosing = token === '}' || token === ']';
    if (isClosing) depth--;
    const wasOpening = before === '{' || before === '[';
    if (isClosing !== wasOpening || before === ',') parts.push(newLine());
    parts.push(token === ':' ? ': ' : token);
    if (token === '{' || token === '[') depth++;
    before = token;
  }
  return parts.join('');
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
