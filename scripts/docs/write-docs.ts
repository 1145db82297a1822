/** `npm run docs`: writes the generated pages. Run it in the project's folder. */
import { writeFileSync } from 'node:fs';
import { generatedPages } from './generated-pages.ts';

for (const [file, text] of Object.entries(generatedPages())) writeFileSync(file, text);
