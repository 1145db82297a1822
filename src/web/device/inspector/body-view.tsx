import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import type { BodyReport } from '../../../agent/api/inspection/inspection-reports.ts';
import { byteSize } from '../../ui/byte-size.ts';
import { indentedJson } from './indented-json.ts';
import { inspector } from './strings.ts';

const text = inspector.body;
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
  const facts = [type, text.size(byteSize(bytes), byteSize(decoded)), encoding && text.encoding(encoding)];
  return (
    <div class="body">
      <div class="body-head">
        <p class="hint">{facts.filter(Boolean).join(' · ')}</p>
        <a href={href} download>
          {text.download}
        </a>
      </div>
      {error !== null && <p class="reason">{text.undecodable(error)}</p>}
      {truncated && <p class="reason">{text.truncated}</p>}
      <Content body={body} href={href} />
    </div>
  );
}

function Content({ body, href }: { body: BodyReport; href: string }): JSX.Element {
  const { content_type: type, text: content } = body;
  if (content === null) {
    // From the agent, as the content security policy allows images of this site only.
    if (IMAGE.test(type ?? '') && !body.truncated) return <img class="body-image" src={href} alt={text.image} />;
    return <p class="hint">{text.binary}</p>;
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
          {text.all(byteSize(pretty.length))}
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
          <th>{text.name}</th>
          <th>{text.value}</th>
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
