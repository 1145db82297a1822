import type { ComponentChildren, JSX } from 'preact';

/** A step of adding a site. */
export function Step({
  number,
  title,
  children,
}: {
  number: number;
  title: string;
  children: ComponentChildren;
}): JSX.Element {
  return (
    <section class="card step" aria-labelledby={`step-${number}`}>
      <h3 id={`step-${number}`}>
        {number}. {title}
      </h3>
      {children}
    </section>
  );
}
