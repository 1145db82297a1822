import type { JSX } from 'preact';
import { useId, useRef } from 'preact/hooks';

/** A problem at its place; lines and columns count from 1. */
export interface PlacedProblem {
  line: number;
  column: number;
  message: string;
}

export interface CodeEditorProps {
  label: string;
  value: string;
  onInput: (value: string) => void;
  problems: readonly PlacedProblem[];
  hint?: string;
  rows?: number;
}

/** A text area with line numbers. Problems are marked at their lines, and listed below; each leads to its place. */
export function CodeEditor({ label, value, onInput, problems, hint, rows = 14 }: CodeEditorProps): JSX.Element {
  const id = useId();
  const area = useRef<HTMLTextAreaElement>(null);
  const gutter = useRef<HTMLDivElement>(null);
  const wrong = new Set(problems.map(({ line }) => line));
  const count = value.split('\n').length;
  const goTo = ({ line, column }: PlacedProblem) => {
    const { current } = area;
    if (!current) return;
    const before = value.split('\n').slice(0, line - 1);
    const at = before.reduce((sum, text) => sum + text.length + 1, 0) + column - 1;
    current.focus();
    current.setSelectionRange(at, at);
    const lineHeight = current.scrollHeight / Math.max(count, 1);
    current.scrollTop = Math.max(0, (line - 3) * lineHeight);
  };
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <div class="editor">
        <div class="gutter" ref={gutter} aria-hidden="true">
          {Array.from({ length: count }, (_, at) => (
            <span key={at} class={wrong.has(at + 1) ? 'number wrong' : 'number'}>
              {at + 1}
            </span>
          ))}
        </div>
        <textarea
          id={id}
          ref={area}
          rows={rows}
          wrap="off"
          spellcheck={false}
          autocapitalize="off"
          autocomplete="off"
          value={value}
          aria-invalid={problems.length > 0}
          aria-describedby={`${id}-hint ${id}-problems`}
          onInput={(event) => onInput(event.currentTarget.value)}
          onScroll={(event) => {
            if (gutter.current) gutter.current.scrollTop = event.currentTarget.scrollTop;
          }}
        />
      </div>
      {hint !== undefined && (
        <p id={`${id}-hint`} class="hint">
          {hint}
        </p>
      )}
      <ul id={`${id}-problems`} class="editor-problems" aria-live="polite">
        {problems.map((problem) => (
          <li key={`${problem.line}:${problem.column} ${problem.message}`}>
            <button type="button" class="link" onClick={() => goTo(problem)}>
              Line {problem.line}
            </button>{' '}
            {problem.message}
          </li>
        ))}
      </ul>
    </div>
  );
}
