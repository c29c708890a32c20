/* Before anything is drawn: the theme that the reader chose last, if any; otherwise that of the system. */
try {
  const chosen = localStorage.getItem("tbdprof-theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
} catch (error) { /* a file opened without storage has the system's theme */ }
