import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';

/** Modules around the code that scanners need to be light. */
const MARGIN = 4;

interface Modules {
  size: number;
  path: string;
}

/** A QR code of a text, drawn as one path. Its encoder is loaded with the first one. */
export function QrCode({ text, label }: { text: string; label: string }): JSX.Element {
  const modules = useSignal<Modules | null>(null);
  useEffect(() => {
    void encode(text).then((encoded) => {
      modules.value = encoded;
    });
  }, [text]);
  const { size, path } = modules.value ?? { size: 21, path: '' };
  const side = size + 2 * MARGIN;
  return (
    <svg class="qr" role="img" aria-label={label} viewBox={`${-MARGIN} ${-MARGIN} ${side} ${side}`}>
      <rect x={-MARGIN} y={-MARGIN} width={side} height={side} class="qr-light" />
      <path d={path} class="qr-dark" />
    </svg>
  );
}

async function encode(text: string): Promise<Modules> {
  const { encode: encodeRows } = await import('uqr');
  const { size, data } = encodeRows(text, { border: 0, ecc: 'M' });
  const path = data.flatMap((row, y) => row.map((dark, x) => (dark ? `M${x} ${y}h1v1h-1z` : ''))).join('');
  return { size, path };
}
