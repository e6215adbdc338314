/** Text files that are embedded with `with { type: "text" }`. */
declare module "*.txt" {
  const text: string;
  // biome-ignore lint/style/noDefaultExport: what a text import gives is its default
  export default text;
}
