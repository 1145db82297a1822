import { type Signal, signal } from '@preact/signals';
import type { JSX } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';
import type { TunnelDetail } from '../../agent/api/agent-operations.ts';
import { NumberField, SelectField, setter, TextField } from '../ui/field.tsx';

const MOST_CONNECTIONS = 1000;

/** Of all tunnels, of those with upstreams of HTTP, and of those with https only. */
const COMMON_OPTIONS = ['bandwidth'] as const;
const HTTP_OPTIONS = ['max_connections', 'response_timeout', 'host_header', 'rewrite_redirects'] as const;
const TLS_OPTIONS = [
  'upstream_tls_verify',
  'upstream_tls_ca_file',
  'upstream_tls_server_name',
  'upstream_tls_min_version',
] as const;
const OPTIONS = [...COMMON_OPTIONS, ...HTTP_OPTIONS, ...TLS_OPTIONS];
type Option = (typeof OPTIONS)[number];

/** The options of a tunnel while somebody edits them. */
export class OptionsDraft {
  readonly texts: Readonly<Record<Option, Signal<string>>>;
  readonly #before: Readonly<Record<Option, string>>;

  /** @param tunnel its options; null is not set */
  constructor(tunnel: { readonly [option in Option]?: TunnelDetail[option] | null } = {}) {
    const texts = OPTIONS.map((option) => [option, textOf(option, tunnel[option])] as const);
    this.#before = Object.fromEntries(texts) as Record<Option, string>;
    this.texts = Object.fromEntries(texts.map(([option, text]) => [option, signal(text)])) as typeof this.texts;
  }

  /** Whether some were set before. */
  get isUsed(): boolean {
    return OPTIONS.some((option) => this.#before[option] !== '');
  }

  /** The members of the API for those that were edited; null resets one, as all that the upstream does not support. */
  changes(protocol: string, upstream: string): Record<string, unknown> {
    const ofHttp = isHttps(upstream) ? OPTIONS : [...COMMON_OPTIONS, ...HTTP_OPTIONS];
    const supported: readonly Option[] = protocol === 'http' ? ofHttp : COMMON_OPTIONS;
    const edited = OPTIONS.map((option) => [option, supported.includes(option) ? this.#textOf(option) : ''] as const);
    const changed = edited.filter(([option, text]) => text !== this.#before[option]);
    return Object.fromEntries(changed.map(([option, text]) => [option, memberOf(option, text)]));
  }

  #textOf(option: Option): string {
    return this.texts[option].value.trim();
  }
}

/** Whether the problem of a member is shown at its field. */
export function isOption(member: string): boolean {
  return (OPTIONS as readonly string[]).includes(member);
}

function isHttps(upstream: string): boolean {
  return /^\s*https:\/\//i.test(upstream);
}

function textOf(option: Option, value: unknown): string {
  const isDefault = value === undefined || value === null || (option === 'rewrite_redirects' && value === true);
  return isDefault ? '' : String(value);
}

function memberOf(option: Option, text: string): unknown {
  if (text === '') return null;
  if (option === 'max_connections') return Number(text);
  return text === 'true' || text === 'false' ? text === 'true' : text;
}

export interface TunnelOptionsProps {
  draft: OptionsDraft;
  protocol: string;
  /** What the tunnel forwards to. */
  upstream: string;
  /** What is wrong, by member. */
  problems: Readonly<Record<string, string>>;
}

/** The options of a tunnel, which few tunnels need: closed at first, unless some are set. */
export function TunnelOptions({ draft, protocol, upstream, problems }: TunnelOptionsProps): JSX.Element {
  const element = useRef<HTMLDetailsElement>(null);
  const open = () => element.current?.setAttribute('open', '');
  const hasProblem = Object.keys(problems).some(isOption);
  useLayoutEffect(() => {
    if (hasProblem || draft.isUsed) open();
  }, [hasProblem]);
  const text = (option: Option) => ({
    value: draft.texts[option].value,
    onInput: setter(draft.texts[option]),
    problem: problems[option],
  });
  const choice = (option: Option) => ({
    value: draft.texts[option].value,
    onChange: setter(draft.texts[option]),
  });
  return (
    <details ref={element} class="disclosure" onInvalidCapture={open}>
      <summary>More options</summary>
      <div class="disclosed">
        <TextField
          label="Bandwidth"
          hint="Such as 2Mbit, in each direction, or 512kbit/2Mbit: to clients and from them. Default: no limit."
          {...text('bandwidth')}
        />
        {protocol === 'http' && (
          <>
            <NumberField
              label="Connections at a time"
              hint="For a device that takes few. Further requests wait. Default: no limit."
              bounds={{ min: 1, max: MOST_CONNECTIONS, canBeEmpty: true }}
              {...text('max_connections')}
            />
            <TextField
              label="Time to begin a response"
              hint="Such as 90s, 10m or 1h. Default: 5m."
              {...text('response_timeout')}
            />
            <TextField
              label="Host header"
              hint="Enter rewrite for the upstream’s own address, or a name such as cam.lan. Default: what clients ask for."
              {...text('host_header')}
            />
            <SelectField
              label="Redirects to the upstream’s own address"
              options={[
                { value: '', label: 'Lead to the tunnel (default)' },
                { value: 'false', label: 'Stay as they are' },
              ]}
              {...choice('rewrite_redirects')}
            />
          </>
        )}
        {protocol === 'http' && isHttps(upstream) && (
          <>
            <SelectField
              label="Certificate of the upstream"
              options={[
                { value: '', label: 'As the agent is set (default)' },
                { value: 'true', label: 'Verify' },
                { value: 'false', label: 'Accept any certificate' },
              ]}
              {...choice('upstream_tls_verify')}
            />
            <TextField
              label="CA file"
              hint="Path on this device to CA certificates, as PEM. Default: the usual CAs."
              {...text('upstream_tls_ca_file')}
            />
            <TextField
              label="Server name"
              hint="The name in the upstream’s certificate. Default: the upstream’s host."
              {...text('upstream_tls_server_name')}
            />
            <SelectField
              label="Lowest version of TLS"
              options={[
                { value: '', label: '1.2 (default)' },
                { value: '1.3', label: '1.3' },
                { value: '1.1', label: '1.1, weak' },
                { value: '1.0', label: '1.0, weak: for old devices' },
              ]}
              {...choice('upstream_tls_min_version')}
            />
          </>
        )}
      </div>
    </details>
  );
}
